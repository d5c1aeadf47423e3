"""Mixtures: several snapshots of texts as one, for a training that reads all of them.

A mixture has no shards of its own. Its manifest lists the shards of its sources, source by source, so code that moves,
stores or reads a snapshot needs no further file. It has no weights: these belong to the training.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

from slipway.trainer.base import atomic, digest
from slipway.trainer.data import shards
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.shards import TextSnapshot, TokenSplit

FORMAT = "slipway.mixture/1"
JOINED = "+"
"""Between the names of the datasets in the name of a mixture."""


@dataclass(frozen=True)
class MixtureSource:
    """One snapshot of a mixture."""

    dataset: str
    snapshot: str
    """SHA-256 of its manifest."""
    shards: Mapping[str, int]
    """How many shards it has, by split."""
    text_bytes: Mapping[str, int]
    """The UTF-8 of its documents, by split."""
    tokens: Mapping[str, int]
    """Its tokens, by split."""


@dataclass(frozen=True)
class MixtureSnapshot(TextSnapshot):
    """Snapshots of texts with one tokenizer; their shards are in the order of the sources."""

    FORMAT: ClassVar = FORMAT

    sources: tuple[MixtureSource, ...]

    def ranges(self, split: str) -> dict[str, range]:
        """The places of each dataset's shards in a split."""
        ends = list(accumulate(source.shards[split] for source in self.sources))
        return {
            source.dataset: range(end - source.shards[split], end)
            for source, end in zip(self.sources, ends, strict=True)
        }


def mixture(sources: Mapping[str, TextSnapshot | ImageSnapshot]) -> MixtureSnapshot:
    """The mixture of these snapshots, sorted by the names of their datasets.

    Raises ValueError, with both names, for datasets with different tokenizers, and for one of images.
    """
    texts = dict[str, TextSnapshot]()
    for name in sorted(sources):
        snapshot = sources[name]
        if isinstance(snapshot, ImageSnapshot):
            raise ValueError(f"dataset {name}: found images, expected texts: a mix is of texts")
        texts[name] = snapshot
    first, *others = texts
    for name in others:
        _check_tokenizers(first, texts[first], name, texts[name])
    return MixtureSnapshot(
        dataset=JOINED.join(texts),
        recipe=digest.sha256(atomic.canonical_json({name: text.recipe for name, text in texts.items()})),
        source={"kind": "mixture", "sources": {name: text.source for name, text in texts.items()}},
        documents={},
        tokenizer=texts[first].tokenizer,
        dtype=texts[first].dtype,
        splits={split: _joined([text.splits[split] for text in texts.values()]) for split in texts[first].splits},
        sources=tuple(_source(name, text) for name, text in texts.items()),
    )


def sources_of(snapshot: TextSnapshot | ImageSnapshot) -> list[str]:
    """The snapshots that a training on this one reads, by SHA-256: the sources of a mixture, or itself."""
    if isinstance(snapshot, MixtureSnapshot):
        return [source.snapshot for source in snapshot.sources]
    return [snapshot.sha256]


def parse_manifest(data: bytes, sha256: str, where: str) -> MixtureSnapshot:
    """The mixture of a manifest's bytes. Raises ValueError, beginning with `where`, as for a snapshot."""
    version, value = shards.manifest_value(data, sha256, where)
    if version != FORMAT:
        raise ValueError(f"{where}: format: found {version!r}, expected {FORMAT!r}")
    with shards.describing(where, FORMAT):
        sources = tuple(MixtureSource(**fields) for fields in value["sources"])
        for source in sources:
            digest.checked(source.snapshot)
        return MixtureSnapshot(**{**shards.text_fields(value), "sources": sources})


def _source(name: str, snapshot: TextSnapshot) -> MixtureSource:
    splits = snapshot.splits.items()
    return MixtureSource(
        name,
        snapshot.sha256,
        shards={split: len(token_split.shards) for split, token_split in splits},
        text_bytes={split: token_split.text_bytes for split, token_split in splits},
        tokens={split: token_split.tokens for split, token_split in splits},
    )


def _joined(splits: list[TokenSplit]) -> TokenSplit:
    sums: dict[str, Any] = {
        field.name: sum(getattr(split, field.name) for split in splits)
        for field in dataclasses.fields(TokenSplit)
        if field.name != "shards"
    }
    return TokenSplit(**sums, shards=tuple(shard for split in splits for shard in split.shards))


def _check_tokenizers(first: str, snapshot: TextSnapshot, name: str, other: TextSnapshot) -> None:
    if snapshot.tokenizer != other.tokenizer:
        raise ValueError(
            f"datasets {first} and {name}: found two tokenizers ({snapshot.tokenizer.sha256[:12]} and "
            f"{other.tokenizer.sha256[:12]}), expected one: give both recipes the same tokenizer.file, and build "
            "them again"
        )

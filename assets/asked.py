"""Live requests: what the server is asked, beside the documents that the version was trained on, in three figures.

Languages and tokens are compared as causes of a retraining; lengths are shown beside them, for a question is shorter
than a document by its nature.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.texts.checks import sample
from slipway.resources.warehouse import stability_index
from slipway.serving import asked
from slipway.serving.api.texts import ServedTokenizer
from slipway.serving.asked import AskedRecords, TextCounts
from slipway.serving.records import ServedVersion
from slipway.trainer.data import snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.shards import TextSnapshot
from slipway.trainer.data.snapshots import Snapshot

DAYS = 7
"""Today and so many days before are compared."""
LEAST = 200
"""Nothing is said of fewer texts: the index of few texts is large by chance."""
SAMPLED = 500
"""Documents of a snapshot that are counted, at even distances."""


@dataclass(frozen=True)
class LiveDrift:
    """How differently what is asked is distributed from what was trained on."""

    texts: int
    """That were asked and counted."""
    left_out: int
    figures: Mapping[str, float]
    """The population stability index of languages, tokens and lengths; empty below `LEAST` texts."""
    languages: Mapping[str, float]
    """The shares of the three that are asked most."""

    @property
    def cause(self) -> float:
        """The larger of the two that count as a cause of a retraining; 0 while nothing is known."""
        return max((self.figures.get(name, 0.0) for name in ("languages", "tokens")), default=0.0)


def count_trained(durable: Path, model: str, version: ServedVersion, snapshot: str) -> None:
    """Count the documents of the snapshot that a version was trained on, once.

    Raises ValueError for a snapshot that is gone, and OSError.
    """
    export, records = durable / version.folder, AskedRecords(durable, model)
    name = asked.tokenizer_of(export)
    if records.trained(snapshot, name) is not None:
        return
    tokenizer, counts = ServedTokenizer(export), TextCounts()
    described = list(_texts(snapshots.read(durable, snapshot), durable))
    for each in described:
        for split, tokens in sample(each, durable, max(1, SAMPLED // len(described))):
            if split == "train":
                text = tokenizer.decode(tokens.tolist())
                counts.add(text, tokenizer.encode(text[: asked.LONGEST]))
    if counts.texts:
        records.keep_trained(snapshot, name, counts)


def _texts(described: Snapshot, durable: Path) -> Iterator[TextSnapshot]:
    """A snapshot of texts itself, those of a mixture; none of pictures."""
    if isinstance(described, MixtureSnapshot):
        for source in described.sources:
            yield from _texts(snapshots.read(durable, source.snapshot), durable)
    elif isinstance(described, TextSnapshot):
        yield described


def live_drift(durable: Path, model: str, version: ServedVersion, snapshot: str) -> LiveDrift | None:
    """What is asked of a version, beside the snapshot that it was trained on; None where that was not counted.

    Raises OSError.
    """
    records, name = AskedRecords(durable, model), asked.tokenizer_of(durable / version.folder)
    trained = records.trained(snapshot, name)
    if trained is None:
        return None
    found = records.asked(name, DAYS)
    most = sorted(found.languages.items(), key=lambda pair: -pair[1])[:3]
    return LiveDrift(
        found.texts,
        found.left_out,
        figures(trained, found) if found.texts >= LEAST else {},
        {language: round(times / found.texts, 4) for language, times in most},
    )


def figures(trained: TextCounts, found: TextCounts) -> dict[str, float]:
    """The population stability index of each distribution, from what was trained on to what is asked."""
    pairs = {
        "languages": (trained.languages, found.languages),
        "tokens": (trained.tokens, found.tokens),
        "lengths": (trained.lengths, found.lengths),
    }
    return {
        name: round(stability_index(list(before.items()), list(after.items())), 4)
        for name, (before, after) in pairs.items()
    }

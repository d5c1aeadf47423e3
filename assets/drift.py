"""Drift: how differently the documents of two snapshots are distributed, and live requests from what was trained on.

Of live requests, languages and tokens are compared as causes of a retraining; lengths are shown beside them, for a
question is shorter than a document by its nature.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.images import checks as of_images
from slipway.assets.datasets.snapshots.outcomes import table_of
from slipway.assets.datasets.texts import checks as of_texts
from slipway.assets.datasets.texts.checks import sample
from slipway.resources.tiers import Tiers
from slipway.resources.warehouse import stability_index
from slipway.serving import request_statistics
from slipway.serving.api.texts import ServedTokenizer
from slipway.serving.records import ServedVersion
from slipway.serving.request_statistics import RequestRecords, TextCounts
from slipway.trainer.data import snapshots
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.shards import TextSnapshot
from slipway.trainer.data.snapshots import Snapshot

AnySnapshot = TextSnapshot | ImageSnapshot
LIVE_DAYS = 7
"""Today and so many days before are compared."""
LEAST_REQUESTS = 200
"""Nothing is said of fewer texts: the index of few texts is large by chance."""
SAMPLED_REQUESTS = 500
"""Documents of a snapshot that are counted, at even distances."""


def between(before: str, current: str, tiers: Tiers) -> dict[str, float]:
    """The population stability index of each thing that is compared: lengths and languages, or classes of pictures.

    Of two mixtures, the largest among the datasets that both have. Empty where the documents of one snapshot are gone,
    or one has texts and the other pictures. Raises ValueError for a snapshot that is gone.
    """
    durable = tiers.durable_path
    old, new = (snapshots.read(durable, sha256) for sha256 in (before, current))
    largest = dict[str, float]()
    for former, latter in _pairs(old, new, durable):
        for name, index in _compared(former, latter, durable).items():
            largest[name] = max(index, largest.get(name, index))
    return largest


@dataclass(frozen=True)
class LiveDrift:
    """How differently what is asked is distributed from what was trained on."""

    texts: int
    """That were asked and counted."""
    left_out: int
    figures: Mapping[str, float]
    """The population stability index of languages, tokens and lengths; empty below `LEAST_REQUESTS` texts."""
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
    export, records = durable / version.folder, RequestRecords(durable, model)
    name = request_statistics.tokenizer_of(export)
    if records.trained(snapshot, name) is not None:
        return
    tokenizer, counts = ServedTokenizer(export), TextCounts()
    described = list(_texts(snapshots.read(durable, snapshot), durable))
    for described_snapshot in described:
        for split, tokens in sample(described_snapshot, durable, max(1, SAMPLED_REQUESTS // len(described))):
            if split == "train":
                text = tokenizer.decode(tokens.tolist())
                counts.add(text, tokenizer.encode(text[: request_statistics.LONGEST]))
    if counts.texts:
        records.keep_trained(snapshot, name, counts)


def live_drift(durable: Path, model: str, version: ServedVersion, snapshot: str) -> LiveDrift | None:
    """What is asked of a version, beside the snapshot that it was trained on; None where that was not counted.

    Raises OSError.
    """
    records, name = RequestRecords(durable, model), request_statistics.tokenizer_of(durable / version.folder)
    trained = records.trained(snapshot, name)
    if trained is None:
        return None
    texts = records.recent_counts(name, LIVE_DAYS)
    most = sorted(texts.languages.items(), key=lambda pair: -pair[1])[:3]
    return LiveDrift(
        texts.texts,
        texts.left_out,
        live_figures(trained, texts) if texts.texts >= LEAST_REQUESTS else {},
        {language: round(times / texts.texts, 4) for language, times in most},
    )


def live_figures(trained: TextCounts, live: TextCounts) -> dict[str, float]:
    """The population stability index of each distribution, from what was trained on to what is asked."""
    pairs = {
        "languages": (trained.languages, live.languages),
        "tokens": (trained.tokens, live.tokens),
        "lengths": (trained.lengths, live.lengths),
    }
    return {
        name: round(stability_index(list(before.items()), list(after.items())), 4)
        for name, (before, after) in pairs.items()
    }


def _pairs(old: AnySnapshot, new: AnySnapshot, durable: Path) -> Iterator[tuple[AnySnapshot, AnySnapshot]]:
    """The snapshots that are compared with each other: of mixtures, two of each dataset."""
    if not isinstance(new, MixtureSnapshot):
        yield old, new
    elif isinstance(old, MixtureSnapshot):
        known = {source.dataset: source.snapshot for source in old.sources}
        for source in new.sources:
            if source.dataset in known:
                yield snapshots.read(durable, known[source.dataset]), snapshots.read(durable, source.snapshot)


def _compared(old: AnySnapshot, new: AnySnapshot, durable: Path) -> dict[str, float]:
    tables = [table_of(snapshot, durable) for snapshot in (old, new)]
    if type(old) is not type(new) or not all(table.exists() for table in tables):
        return {}
    compare = of_images.drift if isinstance(new, ImageSnapshot) else of_texts.drift
    return compare(*tables)


def _texts(described: Snapshot, durable: Path) -> Iterator[TextSnapshot]:
    """A snapshot of texts itself, those of a mixture; none of pictures."""
    if isinstance(described, MixtureSnapshot):
        for source in described.sources:
            yield from _texts(snapshots.read(durable, source.snapshot), durable)
    elif isinstance(described, TextSnapshot):
        yield described

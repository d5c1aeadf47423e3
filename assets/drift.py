"""Drift between the documents of two snapshots, and between live requests and the training documents.

For live requests, drift of languages and tokens can cause a retraining. Lengths are only shown, because a question is
naturally shorter than a document.
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
"""The number of days of requests to compare, including today."""
LEAST_REQUESTS = 200
"""The fewest texts to compare, because the index of few texts is large by chance."""
SAMPLED_REQUESTS = 500
"""The number of evenly spaced documents of a snapshot to count."""


def between(before: str, current: str, tiers: Tiers) -> dict[str, float]:
    """The population stability index of lengths and of languages, or of the classes of pictures.

    For two mixtures it is the largest index among the datasets in both. Empty if the documents of one snapshot are
    gone, or if one has texts and the other pictures. Raises ValueError for a snapshot that is gone.
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
    """The drift of live requests from the training documents."""

    texts: int
    """The number of counted requests."""
    left_out: int
    figures: Mapping[str, float]
    """The population stability index of languages, tokens and lengths; empty below `LEAST_REQUESTS` texts."""
    languages: Mapping[str, float]
    """The shares of the three most frequent languages of the requests."""

    @property
    def cause(self) -> float:
        """The larger of the two indices that can cause a retraining; 0 if they are unknown."""
        return max((self.figures.get(name, 0.0) for name in ("languages", "tokens")), default=0.0)


def count_trained(durable: Path, model: str, version: ServedVersion, snapshot: str) -> None:
    """Count the documents of the snapshot that a version was trained on, once.

    Raises ValueError for a snapshot that is gone, and OSError.
    """
    export = durable / version.folder
    records = RequestRecords(durable, model)
    name = request_statistics.tokenizer_of(export)
    if records.trained(snapshot, name) is not None:
        return
    tokenizer = ServedTokenizer(export)
    counts = TextCounts()
    described = list(_texts(snapshots.read(durable, snapshot), durable))
    for described_snapshot in described:
        for split, tokens in sample(described_snapshot, durable, max(1, SAMPLED_REQUESTS // len(described))):
            if split == "train":
                text = tokenizer.decode(tokens.tolist())
                counts.add(text, tokenizer.encode(text[: request_statistics.LONGEST]))
    if counts.texts:
        records.keep_trained(snapshot, name, counts)


def live_drift(durable: Path, model: str, version: ServedVersion, snapshot: str) -> LiveDrift | None:
    """The drift of a version's requests from the snapshot that it was trained on; None if that was not counted.

    Raises OSError.
    """
    records = RequestRecords(durable, model)
    name = request_statistics.tokenizer_of(durable / version.folder)
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
    """The population stability index of each distribution, from the training documents to the requests."""
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
    """The pairs of snapshots to compare: for mixtures, one pair for each dataset."""
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
    """The snapshot itself if it has texts, the snapshots of a mixture, or nothing for pictures."""
    if isinstance(described, MixtureSnapshot):
        for source in described.sources:
            yield from _texts(snapshots.read(durable, source.snapshot), durable)
    elif isinstance(described, TextSnapshot):
        yield described

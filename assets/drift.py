"""Drift: how differently the documents of two snapshots are distributed, whatever lies between them."""

from collections.abc import Iterator
from pathlib import Path

from slipway.assets.datasets.images import checks as of_images
from slipway.assets.datasets.snapshots.outcomes import table_of
from slipway.assets.datasets.texts import checks as of_texts
from slipway.resources.tiers import Tiers
from slipway.trainer.data import snapshots
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.shards import TextSnapshot

Snapshot = TextSnapshot | ImageSnapshot


def between(before: str, current: str, tiers: Tiers) -> dict[str, float]:
    """The population stability index of each thing that is compared: lengths and languages, or classes of pictures.

    Of two mixtures, the largest among the datasets that both have. Empty where the documents of one snapshot are gone,
    or one has texts and the other pictures. Raises ValueError for a snapshot that is gone.
    """
    durable = tiers.durable_path
    old, new = (snapshots.read(durable, each) for each in (before, current))
    largest = dict[str, float]()
    for former, latter in _pairs(old, new, durable):
        for name, index in _compared(former, latter, durable).items():
            largest[name] = max(index, largest.get(name, index))
    return largest


def _pairs(old: Snapshot, new: Snapshot, durable: Path) -> Iterator[tuple[Snapshot, Snapshot]]:
    """The snapshots that are compared with each other: of mixtures, two of each dataset."""
    if not isinstance(new, MixtureSnapshot):
        yield old, new
    elif isinstance(old, MixtureSnapshot):
        known = {source.dataset: source.snapshot for source in old.sources}
        for source in new.sources:
            if source.dataset in known:
                yield snapshots.read(durable, known[source.dataset]), snapshots.read(durable, source.snapshot)


def _compared(old: Snapshot, new: Snapshot, durable: Path) -> dict[str, float]:
    tables = [table_of(each, durable) for each in (old, new)]
    if type(old) is not type(new) or not all(table.exists() for table in tables):
        return {}
    compare = of_images.drift if isinstance(new, ImageSnapshot) else of_texts.drift
    return compare(*tables)

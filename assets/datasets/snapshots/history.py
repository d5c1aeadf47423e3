"""History: the snapshots that a dataset has pointed at, and the names by which a user selects one of them.

A name is the beginning of the SHA-256, or the number of changes since the dataset pointed at the snapshot: ``~1``.
"""

from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.snapshots import pointer
from slipway.trainer.base.counting import counted
from slipway.trainer.data import shards, snapshots
from slipway.trainer.data.snapshots import Snapshot

GONE = "its manifest is gone: a collection of garbage removed it, unless a scrub says that it is lost"
LISTED = 12
"""Snapshots that a message lists, the latest ones."""


@dataclass(frozen=True)
class PastSnapshot:
    """A snapshot that a dataset has pointed at."""

    ago: int
    """How many changes ago; 0 for the snapshot that the dataset points at now."""
    sha256: str
    documents: int
    tokens: int
    """0 for images."""
    shards: int
    fault: str = ""
    """Why its manifest cannot be read, for example because it was collected as garbage."""


def history(durable: Path, dataset: str) -> list[PastSnapshot]:
    """The snapshots of a dataset, the latest last."""
    known = pointer.past(durable, dataset)
    return [_past(durable, len(known) - 1 - index, sha256) for index, sha256 in enumerate(known)]


def find(durable: Path, dataset: str, name: str) -> Snapshot:
    """The snapshot of a dataset that `name` selects. Raises ValueError when it selects none or several."""
    known = pointer.past(durable, dataset)
    if not known:
        raise none_of(dataset)
    if name == "~1" and len(known) == 1:
        raise ValueError(f"dataset {dataset}: found one snapshot, {known[0][:12]}, expected an earlier one too")
    if name.startswith("~"):
        found = known[-1 - int(name[1:])] if name[1:].isdigit() and int(name[1:]) < len(known) else None
        meant = [found] if found else []
    else:
        meant = [sha256 for sha256 in known if sha256.startswith(name)]
    if len(meant) != 1:
        listed = ", ".join(sha256[:12] for sha256 in known[-LISTED:])
        earlier = ", or an earlier one" if len(known) > LISTED else ""
        raise ValueError(
            f"dataset {dataset}: {name or 'an empty name'} selects {counted(len(meant), 'snapshot')}, "
            f"expected one of {listed}{earlier}; to list them: slipway data history {dataset}"
        )
    return snapshots.read(durable, meant[0])


def none_of(dataset: str) -> ValueError:
    """What is said of a dataset that has pointed at no snapshot yet."""
    return ValueError(f"dataset {dataset}: found no snapshot, expected one; to make it: slipway data build {dataset}")


def _past(durable: Path, ago: int, sha256: str) -> PastSnapshot:
    try:
        made = snapshots.read(durable, sha256)
    except ValueError as error:
        there = shards.manifest_path(durable, sha256).exists()
        return PastSnapshot(ago, sha256, 0, 0, 0, str(error) if there else GONE)
    if isinstance(made, shards.TextSnapshot):
        splits = made.splits.values()
        documents, tokens = sum(split.documents for split in splits), sum(split.tokens for split in splits)
    else:
        documents, tokens = sum(split.images for split in made.splits.values()), 0
    return PastSnapshot(ago, sha256, documents, tokens, len(made.shards()))

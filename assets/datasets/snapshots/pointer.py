"""The pointer: the current snapshot of a dataset, and the history of its snapshots.

A user selects one of them by a name: the beginning of the SHA-256, or the number of changes since the dataset pointed
at the snapshot: ``~1``.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.building.scratch_dir import scratch_dir
from slipway.trainer.base import atomic, codec, journal
from slipway.trainer.base.quantities import counted
from slipway.trainer.data import shards, snapshots
from slipway.trainer.data.snapshots import Snapshot

GONE = "its manifest is gone: a collection of garbage removed it, unless a scrub says that it is lost"
LISTED = 12
"""The number of latest snapshots that a message lists."""


@dataclass(frozen=True)
class SnapshotPointer:
    """``current.json`` of a dataset."""

    snapshot: str
    """The SHA-256 of its manifest."""
    source: str
    """The digest of its source."""


def current(durable: Path, dataset: str) -> str | None:
    """The SHA-256 of the snapshot that a dataset points at, or None before its first.

    Raises ValueError for a file that makes no sense, and OSError.
    """
    try:
        pointer = codec.read_if_there(_folder(durable, dataset) / "current.json", SnapshotPointer)
    except codec.UndecodableRecord as error:
        raise ValueError(f"{error}; remove the file, and then: slipway data build {dataset}") from None
    return pointer.snapshot if pointer else None


def point(durable: Path, dataset: str, sha256: str, source_digest: str) -> None:
    """Point a dataset at a snapshot, and record time and source in its history, once for each change.

    The history is written first: pointing again after a crash in between adds nothing to it.
    """
    folder = _folder(durable, dataset)
    pointer = SnapshotPointer(sha256, source_digest)
    now = codec.plain(pointer)
    with scratch_dir(durable, dataset) as scratch:
        before = journal.read(folder / "history.journal").events
        if not before or {key: before[-1][key] for key in now} != now:
            with journal.Journal(folder / "history.journal") as history:
                history.append({"time": time.time(), **now})
        atomic.replace(folder / "current.json", codec.encode(pointer), scratch)


def past(durable: Path, dataset: str) -> list[str]:
    """The distinct snapshots that a dataset has pointed at, sorted by the last time that it did."""
    events = journal.read(_folder(durable, dataset) / "history.journal").events
    latest = {event["snapshot"]: index for index, event in enumerate(events)}
    return sorted(latest, key=latest.__getitem__)


def _folder(durable: Path, dataset: str) -> Path:
    return durable / "datasets" / dataset


@dataclass(frozen=True)
class PastSnapshot:
    """A snapshot in a dataset's history."""

    ago: int
    """The number of changes since then; 0 for the current snapshot."""
    sha256: str
    documents: int
    tokens: int
    """0 for images."""
    shards: int
    fault: str = ""
    """The reason why its manifest cannot be read, for example garbage collection."""


def history(durable: Path, dataset: str) -> list[PastSnapshot]:
    """The snapshots of a dataset, the latest last."""
    known = past(durable, dataset)
    return [_past(durable, len(known) - 1 - index, sha256) for index, sha256 in enumerate(known)]


def find(durable: Path, dataset: str, name: str) -> Snapshot:
    """The snapshot of a dataset that `name` selects. Raises ValueError if it selects none or several."""
    known = past(durable, dataset)
    if not known:
        raise none_of(dataset)
    if name == "~1" and len(known) == 1:
        raise ValueError(f"dataset {dataset}: found one snapshot, {known[0][:12]}, expected an earlier one too")
    if name.startswith("~"):
        snapshot = known[-1 - int(name[1:])] if name[1:].isdigit() and int(name[1:]) < len(known) else None
        matches = [snapshot] if snapshot else []
    else:
        matches = [sha256 for sha256 in known if sha256.startswith(name)]
    if len(matches) != 1:
        listed = ", ".join(sha256[:12] for sha256 in known[-LISTED:])
        earlier = ", or an earlier one" if len(known) > LISTED else ""
        raise ValueError(
            f"dataset {dataset}: {name or 'an empty name'} selects {counted(len(matches), 'snapshot')}, "
            f"expected one of {listed}{earlier}; to list them: slipway data history {dataset}"
        )
    return snapshots.read(durable, matches[0])


def none_of(dataset: str) -> ValueError:
    """The error for a dataset without a snapshot."""
    return ValueError(f"dataset {dataset}: found no snapshot, expected one; to make it: slipway data build {dataset}")


def _past(durable: Path, ago: int, sha256: str) -> PastSnapshot:
    try:
        snapshot = snapshots.read(durable, sha256)
    except ValueError as error:
        there = shards.manifest_path(durable, sha256).exists()
        return PastSnapshot(ago, sha256, 0, 0, 0, str(error) if there else GONE)
    if isinstance(snapshot, shards.TextSnapshot):
        splits = snapshot.splits.values()
        documents = sum(split.documents for split in splits)
        tokens = sum(split.tokens for split in splits)
    else:
        documents = sum(split.images for split in snapshot.splits.values())
        tokens = 0
    return PastSnapshot(ago, sha256, documents, tokens, len(snapshot.shards()))

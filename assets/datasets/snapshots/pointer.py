"""The pointer: which snapshot a dataset points at now, and the history of all that it has pointed at."""

import time
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.building.workshop import workshop
from slipway.trainer.base import atomic, codec, journal


@dataclass(frozen=True)
class SnapshotPointer:
    """``current.json`` of a dataset."""

    snapshot: str
    """The SHA-256 of its manifest."""
    source: str
    """The digest of what it was made from."""


def current(durable: Path, dataset: str) -> str | None:
    """The SHA-256 of the snapshot that a dataset points at, or None before its first.

    Raises ValueError for a file that makes no sense, and OSError.
    """
    try:
        found = codec.read_if_there(_folder(durable, dataset) / "current.json", SnapshotPointer)
    except codec.UndecodableRecord as error:
        raise ValueError(f"{error}; remove the file, and then: slipway data build {dataset}") from None
    return found.snapshot if found else None


def point(durable: Path, dataset: str, sha256: str, source_digest: str) -> None:
    """Point a dataset at a snapshot, and note in its history when and from which source; once for each change.

    The history is written first: pointing again after a crash in between adds nothing to it.
    """
    folder = _folder(durable, dataset)
    made = SnapshotPointer(sha256, source_digest)
    now = codec.plain(made)
    with workshop(durable, dataset) as shop:
        before = journal.read(folder / "history.journal").events
        if not before or {key: before[-1][key] for key in now} != now:
            with journal.Journal(folder / "history.journal") as history:
                history.append({"time": time.time(), **now})
        atomic.replace(folder / "current.json", codec.encode(made), shop)


def past(durable: Path, dataset: str) -> list[str]:
    """The snapshots that a dataset has pointed at, each once, in the order of the last time that it did."""
    events = journal.read(_folder(durable, dataset) / "history.journal").events
    latest = {event["snapshot"]: index for index, event in enumerate(events)}
    return sorted(latest, key=latest.__getitem__)


def _folder(durable: Path, dataset: str) -> Path:
    return durable / "datasets" / dataset

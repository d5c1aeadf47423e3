"""Garbage: what nothing refers to any more in the durable tier, and its removal.

Only files that are named by their content are ever collected: shards, documents tables, tokenizers, manifests
and segments. What a kept snapshot or the latest build of a dataset refers to stays, and so does whatever is
young, as a build that has not written its manifest yet may be about to refer to it.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assets.datasets import documents, extraction, tokenizer
from assets.datasets.memo import Memo
from assets.datasets.workshop import building
from trainer import journal, lock, shards, snapshots

FOLDERS = ("shards", "snapshots", "documents", "tokenizers", "segments")
STEPS = ("documents", "tokenizer", "snapshot")
YOUNG_SECONDS = 24 * 3600.0
"""Longer than a build takes from its first shard to its manifest."""


@dataclass(frozen=True)
class Garbage:
    """Files that nothing refers to, their bytes, and how many snapshots stay."""

    files: tuple[Path, ...]
    bytes: int
    kept_snapshots: int


def collect(
    durable: Path, referred: Iterable[str], keep: int, older: float = YOUNG_SECONDS, dry_run: bool = False
) -> Garbage:
    """Remove what nothing refers to, and say what it was; a dry run removes nothing.

    `referred` are snapshots that trainings and models refer to. Besides those, every dataset keeps the snapshot
    it points at and the `keep` ones before it. Files younger than `older` seconds stay. Waits for builds that are
    under way. Raises ValueError when a snapshot that must stay cannot be read: nothing is removed on a guess.
    """
    datasets = [folder.name for folder in sorted((durable / "datasets").glob("*")) if folder.is_dir()]
    with contextlib.ExitStack() as builds:
        for dataset in datasets:
            builds.enter_context(lock.exclusive(building(durable, dataset)))
        garbage = _find(durable, datasets, set(referred), keep, older)
        # Manifests first, so that no snapshot is listed whose shards are gone.
        for path in () if dry_run else sorted(garbage.files, key=lambda path: path.parent.name != "snapshots"):
            path.unlink(missing_ok=True)
    return garbage


def _find(durable: Path, datasets: list[str], referred: set[str], keep: int, older: float) -> Garbage:
    recent = {sha256 for dataset in datasets for sha256 in history(durable, dataset)[-(keep + 1) :]}
    kept = recent | referred
    named = set[Path]()
    for sha256 in kept:
        named |= set(files_of(durable, sha256))
    for dataset in datasets:
        named |= set(_latest_build(durable, dataset))
    oldest = time.time() - older
    loose = [path for path in _content(durable) if path not in named and path.stat().st_mtime < oldest]
    return Garbage(tuple(loose), sum(path.stat().st_size for path in loose), len(kept))


def history(durable: Path, dataset: str) -> list[str]:
    """The snapshots that a dataset has pointed at, each once, by the last time it did."""
    events = journal.read(durable / "datasets" / dataset / "history.journal").events
    latest = {event["snapshot"]: index for index, event in enumerate(events)}
    return sorted(latest, key=latest.__getitem__)


def files_of(durable: Path, sha256: str) -> Iterator[Path]:
    """All files of a snapshot. Raises ValueError when its manifest cannot be read."""
    described = snapshots.read(durable, sha256)
    yield shards.manifest_path(durable, sha256)
    yield documents.table_path(durable, described.documents["blake3"])
    if isinstance(described, shards.Snapshot):
        yield tokenizer.path(durable, described.tokenizer.sha256)
    yield from (shards.shard_path(durable, shard) for shard in described.shards())


def _latest_build(durable: Path, dataset: str) -> Iterator[Path]:
    """What the last run of each step made, and the texts that it would be continued from."""
    records = [record for step in STEPS if (record := Memo(durable, dataset).latest(step)) is not None]
    made = {durable / file for record in records for file in record.files}
    indexes = {path for path in made if path.parent.name == "extracts"} | {extraction.newest(durable, dataset)}
    yield from made | indexes
    for index in indexes:
        if index.exists():
            yield from extraction.segments(index, durable)


def _content(durable: Path) -> Iterator[Path]:
    for pattern in ("datasets/*/extracts/*", *(f"{folder}/*" for folder in FOLDERS)):
        yield from (path for path in sorted(durable.glob(pattern)) if path.is_file())

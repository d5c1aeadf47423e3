"""Garbage: files of the durable tier to which nothing refers any more, and their removal.

Only files that are named by their content are collected: shards, documents tables, tokenizers, manifests, segments
and indexes. A file stays when a kept snapshot or the latest build of a dataset refers to it. A young file stays too,
because a build that has not written its manifest yet may refer to it.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assets.datasets.building.memo import Memo
from assets.datasets.building.workshop import building
from assets.datasets.documents import document_table, extracts
from assets.datasets.snapshots.pointer import current, past
from assets.datasets.texts import tokenizer
from trainer.base import listing, lock, removal
from trainer.data import shards, snapshots

FOLDERS = ("shards", "snapshots", "documents", "tokenizers", "segments")
STEPS = ("documents", "tokenizer", "snapshot")
YOUNG_SECONDS = 24 * 3600.0
"""Longer than a build takes from its first shard to its manifest."""


@dataclass(frozen=True)
class Garbage:
    """Files to which nothing refers, their bytes, and how many snapshots stay."""

    files: tuple[Path, ...]
    bytes: int
    kept_snapshots: int


def collect(
    durable: Path, referred: Iterable[str], keep: int, older: float = YOUNG_SECONDS, dry_run: bool = False
) -> Garbage:
    """Remove the files to which nothing refers, and return them; a dry run removes nothing.

    `referred` are the snapshots that trainings and models refer to. Every dataset also keeps the snapshot that it
    points at and the `keep` snapshots before it. Files younger than `older` seconds stay. Waits for running builds.
    Raises ValueError, and removes nothing, when a snapshot that must stay cannot be read, and OSError when the datasets
    cannot be listed. Nothing is removed through a symbolic link.
    """
    datasets = [name for name in listing.names(durable / "datasets") if listing.is_folder(durable / "datasets" / name)]
    with contextlib.ExitStack() as builds:
        for dataset in datasets:
            builds.enter_context(lock.exclusive(building(durable, dataset)))
        garbage = _find(durable, datasets, set(referred), keep, older)
        # Manifests go first, so that no snapshot without its shards is listed.
        for path in () if dry_run else sorted(garbage.files, key=lambda path: path.parent.name != "snapshots"):
            removal.remove_file(durable, str(path.relative_to(durable)))
    return garbage


def _find(durable: Path, datasets: list[str], referred: set[str], keep: int, older: float) -> Garbage:
    recent = {sha256 for dataset in datasets for sha256 in past(durable, dataset)[-(keep + 1) :]}
    now = {sha256 for dataset in datasets if (sha256 := current(durable, dataset)) is not None}
    kept = recent | now | referred
    named = set[Path]()
    for sha256 in kept:
        named |= set(files_of(durable, sha256))
    for dataset in datasets:
        named |= set(_latest_build(durable, dataset))
    oldest = time.time() - older
    loose = [path for path in _content(durable) if path not in named and path.stat().st_mtime < oldest]
    return Garbage(tuple(loose), sum(path.stat().st_size for path in loose), len(kept))


def files_of(durable: Path, sha256: str) -> Iterator[Path]:
    """All files of a snapshot. Raises ValueError when its manifest cannot be read."""
    described = snapshots.read(durable, sha256)
    yield shards.manifest_path(durable, sha256)
    yield document_table.path(durable, described.documents["blake3"])
    if isinstance(described, shards.TextSnapshot):
        yield tokenizer.path(durable, described.tokenizer.sha256)
    yield from (shards.shard_path(durable, shard) for shard in described.shards())


def _latest_build(durable: Path, dataset: str) -> Iterator[Path]:
    """The files that the last run of each step made, and the extracts from which the next build continues."""
    records = [record for step in STEPS if (record := Memo(durable, dataset).latest(step)) is not None]
    made = {durable / file for record in records for file in record.files}
    indexes = {path for path in made if path.parent.name == "extracts"} | {extracts.newest(durable, dataset)}
    yield from made | indexes
    for index in indexes:
        if index.exists():
            yield from extracts.segments(index, durable)


def _content(durable: Path) -> Iterator[Path]:
    for pattern in ("datasets/*/extracts/*", *(f"{folder}/*" for folder in FOLDERS)):
        yield from (path for path in sorted(durable.glob(pattern)) if path.is_file())

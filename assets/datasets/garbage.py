"""Garbage collection: finds and removes files of the durable tier without references.

Only files that are named by their content are collected: shards, documents tables, tokenizers, manifests, segments
and indexes. A file stays when a kept snapshot or the latest build of a dataset refers to it. A young file stays too,
because a build that has not written its manifest yet may refer to it; a build that finds a file makes it young again.

Builds share a lock that the collection holds alone. Where locks reach no further than one machine, a build may take up
a file after it was found to be garbage, and a training may be wanted on an old snapshot at any moment. So a file is
first renamed, so that all readers see it as missing, and then checked again, with references that are read again. A
file that has become young, or has a reference by then, is restored.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.building.build_log import BuildLog, BuildPhase, quiet
from slipway.assets.datasets.building.scratch_dir import building, collecting
from slipway.assets.datasets.building.step_cache import StepCache
from slipway.assets.datasets.documents import document_table, extracts
from slipway.assets.datasets.snapshots.pointer import current, past
from slipway.assets.datasets.texts import tokenizer
from slipway.trainer.base import listing, lock, removal
from slipway.trainer.base.units import DAY
from slipway.trainer.data import mixtures, shards, snapshots

FOLDERS = ("shards", "snapshots", "documents", "tokenizers", "segments")
STEPS = ("documents", "tokenizer", "snapshot")
ASIDE = ".aside-"
"""The beginning of the name of a file that will be removed."""
DAMAGED = ".damaged-"
"""The beginning of the name of a file that a scrub has set aside."""
References = Callable[[], Iterable[str]]
"""Returns the snapshots that have references now."""
YOUNG_SECONDS = DAY
"""The age in seconds up to which files are kept, longer than a build takes from its first shard to its manifest."""


@dataclass(frozen=True)
class Garbage:
    """Files without references, their bytes, and the number of snapshots that stay."""

    files: tuple[Path, ...]
    """The files that were removed, or would be in a dry run."""
    bytes: int
    kept_snapshots: int


def collect(
    durable: Path,
    referred: References,
    keep: int,
    older: float = YOUNG_SECONDS,
    dry_run: bool = False,
    log: BuildLog = quiet,
) -> Garbage:
    """Remove the files without references, and return them; a dry run removes nothing.

    `referred` gives the snapshots that trainings, sweeps and models refer to: it is asked before files are set aside,
    and once more before they are removed. Every dataset also keeps the snapshot that it points at and the `keep`
    snapshots before it, as far as an earlier collection left them. Files younger than `older` seconds stay, and all
    files of a manifest that is so young. Waits for running builds.

    Raises ValueError, and removes nothing, when a snapshot that must stay cannot be read, OSError when the datasets
    cannot be listed, and what `referred` raises. Nothing is removed through a symbolic link.
    """
    with contextlib.ExitStack() as builds:
        _wait(builds, collecting(durable), "what is being written to the tier", log)
        for dataset in _datasets(durable):
            _wait(builds, building(durable, dataset), f"a build of {dataset}", log)
        for aside in list(_content(durable, ASIDE)):  # files of a killed collection
            _put_back(durable, aside)
        log("looking at what refers to snapshots")
        loose, kept_snapshots = _find(durable, set(referred()), keep, older)
        removed = list(loose) if dry_run else list(_remove(durable, loose, referred, keep, older, log))
    return Garbage(tuple(removed), sum(loose[path] for path in removed), kept_snapshots)


def _wait(locks: contextlib.ExitStack, folder: Path, owner: str, log: BuildLog) -> None:
    """Take the exclusive lock of a folder, and log the reason of a wait."""
    try:
        locks.enter_context(lock.at_once(folder))
    except lock.LockHeld:
        log(f"waiting for {owner}")
        locks.enter_context(lock.exclusive(folder))


def _remove(
    durable: Path, files: Collection[Path], referred: References, keep: int, older: float, log: BuildLog
) -> Iterator[Path]:
    """Set the files aside, and remove and yield those that are still garbage."""
    set_aside = {path: _set_aside(durable, path) for path in files}
    aside = {path: hidden for path, hidden in set_aside.items() if hidden is not None}
    oldest = time.time() - older
    try:
        kept_snapshots = _kept_snapshots(durable, set(referred()), keep)
    except BaseException:  # their references are unknown, so restore them
        for hidden in aside.values():
            _put_back(durable, hidden)
        raise
    for path, hidden in list(aside.items()):
        if hidden.stat().st_mtime >= oldest or (path.parent.name == "snapshots" and path.stem in kept_snapshots):
            _put_back(durable, aside.pop(path))
    needed = _needed(durable, kept_snapshots | _young(durable, oldest))
    phase = BuildPhase(log, "removing what nothing refers to", len(aside), "files")
    for path, hidden in aside.items():
        if path in needed:
            _put_back(durable, hidden)
        else:
            removal.remove_file(durable, str(hidden.relative_to(durable)))
            yield path
        phase.add(1)


def _datasets(durable: Path) -> list[str]:
    """All datasets. Raises OSError if they cannot be listed."""
    return [name for name in listing.names(durable / "datasets") if listing.is_folder(durable / "datasets" / name)]


def _set_aside(durable: Path, path: Path) -> Path | None:
    """Rename a file to a name that no build finds; None if it is gone. Raises OSError for a link."""
    hidden = path.with_name(ASIDE + path.name)
    if not removal.rename_file(durable, str(path.relative_to(durable)), hidden.name):
        return None
    return hidden


def _put_back(durable: Path, hidden: Path) -> None:
    with contextlib.suppress(FileExistsError):  # a build has written the file again
        hidden.with_name(hidden.name.removeprefix(ASIDE)).hardlink_to(hidden)
    removal.remove_file(durable, str(hidden.relative_to(durable)))


def _find(durable: Path, referred: set[str], keep: int, older: float) -> tuple[dict[Path, int], int]:
    """The files without references, with their bytes, and the number of snapshots that stay."""
    oldest = time.time() - older
    kept_snapshots = _kept_snapshots(durable, referred, keep) | _young(durable, oldest)
    needed = _needed(durable, kept_snapshots)
    loose = [path for path in _content(durable) if path not in needed and path.stat().st_mtime < oldest]
    # Manifests come first, so that no snapshot without its shards is listed.
    ordered = sorted(loose, key=lambda path: path.parent.name != "snapshots")
    return {path: path.stat().st_size for path in ordered}, len(kept_snapshots)


def _kept_snapshots(durable: Path, referred: set[str], keep: int) -> set[str]:
    """The snapshots that have references, or are the last ones of a dataset."""
    datasets = _datasets(durable)
    latest = {sha256 for dataset in datasets for sha256 in past(durable, dataset)[-(keep + 1) :]}
    recent = {sha256 for sha256 in latest if not _collected(durable, sha256)}
    pointed = {current(durable, dataset) for dataset in datasets}
    now = {sha256 for sha256 in pointed if sha256 is not None}
    return recent | now | referred


def _collected(durable: Path, sha256: str) -> bool:
    """Whether an earlier collection removed a snapshot's manifest, which is not merely set aside as damaged."""
    path = shards.manifest_path(durable, sha256)
    return not path.exists() and not path.with_name(DAMAGED + path.name).exists()


def _young(durable: Path, oldest: float) -> set[str]:
    """The snapshots whose manifests are too young to be removed. Their files must stay with them."""
    names = (name for name in listing.names_if_there(durable / "snapshots") if not name.startswith("."))
    paths = (durable / "snapshots" / name for name in names if name.endswith(".json"))
    return {path.stem for path in paths if path.stat().st_mtime >= oldest}


def _needed(durable: Path, snapshots: set[str]) -> set[Path]:
    """The files that kept snapshots and the latest builds of datasets refer to."""
    try:
        named = {path for sha256 in snapshots for path in files_of(durable, sha256)}
    except ValueError as error:
        raise ValueError(
            f"{error}; this snapshot has to stay, and what it refers to is not known: nothing is removed; "
            "to repair it: slipway data scrub --rebuild"
        ) from None
    return named | {path for dataset in _datasets(durable) for path in _latest_build(durable, dataset)}


def files_of(durable: Path, sha256: str) -> Iterator[Path]:
    """All files of a snapshot, and of the sources of a mixture. Raises ValueError when a manifest cannot be read."""
    yield shards.manifest_path(durable, sha256)
    described = snapshots.read(durable, sha256)
    if isinstance(described, mixtures.MixtureSnapshot):
        for source in described.sources:
            yield from files_of(durable, source.snapshot)
        return
    yield document_table.path(durable, described.documents["blake3"])
    if isinstance(described, shards.TextSnapshot):
        yield tokenizer.path(durable, described.tokenizer.sha256)
    yield from (shards.shard_path(durable, shard) for shard in described.shards())


def _latest_build(durable: Path, dataset: str) -> Iterator[Path]:
    """The files that the last run of each step made, and the extracts from which the next build continues."""
    cache = StepCache(durable, dataset)
    records = [record for record in map(cache.latest, STEPS) if record is not None]
    files = {durable / file for record in records for file in record.files}
    indexes = {path for path in files if path.parent.name == "extracts"} | {extracts.newest(durable, dataset)}
    yield from files | indexes
    for index in indexes:
        if index.exists():
            yield from extracts.segments(index, durable)


def _content(durable: Path, prefix: str = "") -> Iterator[Path]:
    """The files that are named by their content, or with a prefix only those whose names begin with it."""
    for pattern in ("datasets/*/extracts/*", *(f"{folder}/*" for folder in FOLDERS)):
        for path in sorted(durable.glob(pattern)):
            if path.is_file() and path.name.startswith(ASIDE) == bool(prefix):
                yield path

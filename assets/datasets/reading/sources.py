"""Sources: lists the files of a dataset's source with their versions, and opens them.

A listing reads no content, and does not depend on the order in which a folder or a bucket lists its files.
"""

import dataclasses
import errno
import io
import itertools
import os
import platform
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import pyarrow as pa

from slipway.assets.datasets.building.build_log import BuildPhase
from slipway.assets.datasets.reading.listed_file import BUFFER, LocalFile, StoredFile, UnreadFile, version_of
from slipway.assets.datasets.reading.sorted_rows import SortedRows
from slipway.recipes.dataset import DatasetRecipe, DirectorySource, ObjectStoreSource, StdlibSource
from slipway.trainer.objects.bucket import AlreadyThere, Bucket
from slipway.trainer.objects.origin import Away, Missing, Unreachable

SETTLED_SECONDS = 2.0
"""Seconds within which a changed file may change again with the same timestamp, because file systems' clocks tick."""
ENTRIES_AT_ONCE = 1 << 15
"""The most entries of a folder in memory; the files of a larger folder are sorted afterwards."""


class SourceFile(NamedTuple):
    """One file of a source: its name there, with forward slashes, and a version that changes with its content."""

    name: str
    bytes: int
    version: str
    """For a local file its size, modification time, change time and inode; for an object its size and ETag."""
    settled: bool
    """Whether an equal version means equal content, which is false for a file written in the last seconds."""


class UnreadName(NamedTuple):
    """A file that a recipe selects but that is not read, with the reason."""

    name: str
    reason: str


FILE = pa.schema([("name", pa.string()), ("bytes", pa.int64()), ("version", pa.string()), ("settled", pa.bool_())])
NAME = pa.schema([("name", pa.string()), ("reason", pa.string())])


def source_files(folder: Path | None = None) -> SortedRows[SourceFile]:
    """An empty collection of files, sorted by name; `folder` stores what does not fit into memory."""
    return SortedRows(SourceFile, FILE, folder)


def unread_names(folder: Path | None = None) -> SortedRows[UnreadName]:
    """An empty collection of files that are not read, sorted by name."""
    return SortedRows(UnreadName, NAME, folder)


@dataclass(frozen=True)
class SourceListing:
    """A listed source: the files that the recipe selects, by name, and the selected files that are not read, with the
    reasons."""

    kind: str
    description: str
    files: SortedRows[SourceFile]
    unread: SortedRows[UnreadName]
    root: Path | Bucket
    bytes: int
    """Of all files."""
    settled: bool
    """Whether all files are."""

    @property
    def left_out(self) -> dict[str, int]:
        """The number of files that are not read, by reason."""
        return dict(sorted(Counter(reason for _, reason in self.unread).items()))

    @property
    def without_names(self) -> "SourceListing":
        """A copy without the names of the files, for a worker that gets its own files to open."""
        return dataclasses.replace(self, files=source_files(), unread=unread_names())

    def open(self, file: SourceFile) -> BinaryIO:
        """The content of a listed file, as a stream that can seek.

        Opening and reading raise UnreadFile if the file has changed since the listing or is not readable, OSError if a
        disk fails, and `slipway.trainer.objects.origin.Unreachable` if an object store fails for too long.
        """
        if isinstance(self.root, Path):
            return cast(BinaryIO, io.BufferedReader(LocalFile(f"{self.root}/{file.name}", file.version), BUFFER))
        try:
            inner = self.root.open(file.name, etag=file.version.partition("-")[2])
            return cast(BinaryIO, io.BufferedReader(StoredFile(cast(io.BufferedReader, inner)), BUFFER))
        except AlreadyThere as error:
            raise UnreadFile(str(error), "changed while it was read") from None
        except Missing as error:
            message = f"{error}: it was listed, and is gone now; start the build again"
            raise UnreadFile(message, "gone since it was listed") from None


def require(recipe: DatasetRecipe) -> None:
    """Raises ValueError, with the recipe's name, if its source is a missing folder."""
    if not isinstance(recipe.source, ObjectStoreSource):
        _folder(recipe)


def list_source(recipe: DatasetRecipe, phase: BuildPhase | None = None, folder: Path | None = None) -> SourceListing:
    """List the files of a recipe's source, and count them in the phase.

    What does not fit into memory is in files below `folder`, by default that of temporary files. Raises ValueError,
    naming the recipe, when there is no such folder or bucket, when it may not be read, or when no file in it is one
    that the recipe takes; OSError when a disk fails or a server does not answer.
    """
    source = recipe.source
    root = Bucket(source.url) if isinstance(source, ObjectStoreSource) else _folder(recipe)
    files = source_files(folder)
    unread = unread_names(folder)
    listed = _objects(recipe, root, unread) if isinstance(root, Bucket) else _walk(recipe, root, unread)
    size = 0
    settled = True
    for file in listed:
        files.append(file)
        size += file.bytes
        settled = settled and file.settled
        if phase:
            phase.add(1)
    if not files:
        raise ValueError(_nothing_found(recipe, root, Counter(reason for _, reason in unread)))
    return SourceListing(source.kind, _description(source), files, unread, root, size, settled)


def _description(source: StdlibSource | DirectorySource | ObjectStoreSource) -> str:
    """A description of a source without its place, because it is part of the snapshot, which is the same everywhere."""
    if isinstance(source, StdlibSource):
        return f"standard library of Python {platform.python_version()}"
    if isinstance(source, ObjectStoreSource):
        return "a prefix of an object store"
    seen_in = source.file_system_snapshot
    if seen_in is None:
        return "a directory"
    return f"a directory in the file system's snapshot {seen_in}"


def _folder(recipe: DatasetRecipe) -> Path:
    if recipe.source.kind == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    assert recipe.source.kind == "directory"
    root = Path(recipe.source.path)
    try:
        problem = "" if root.is_dir() else "a file" if root.exists() else "nothing"
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.ENAMETOOLONG):
            raise
        problem = "no permission to look" if error.errno == errno.EACCES else "a path that is too long"
    if problem:
        raise ValueError(f"dataset {recipe.name}: source.path: found {problem} at {root}, expected a directory")
    return root


def _walk(recipe: DatasetRecipe, root: Path, left_out: SortedRows[UnreadName]) -> Iterator[SourceFile]:
    """The files below a folder. Links to folders are not followed, so no file is read twice."""
    now = time.time()
    above = len(str(root / "x")) - 1
    for entry in _entries(recipe, root):
        name = entry.path[above:]
        if not recipe.selects(name):
            continue
        try:
            reason = _unfit_name(name) or _unfit_entry(entry, root)
            stat = None if reason else entry.stat()
        except FileNotFoundError:
            reason = "gone while it was listed"
            stat = None
        except PermissionError:
            reason = "no permission to follow it"
            stat = None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            reason = "its path is too long"
            stat = None
        if stat is None:
            left_out.append(UnreadName(name.encode(errors="backslashreplace").decode(), str(reason)))
            continue
        settled = now - max(stat.st_mtime, stat.st_ctime) > SETTLED_SECONDS
        yield SourceFile(name, stat.st_size, version_of(stat), settled)


def _entries(recipe: DatasetRecipe, root: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below `root` except folders, and except what the recipe excludes with its folder; of folders with few
    entries in the order of names.

    Raises ValueError for a folder that cannot be read: nobody knows how much of the corpus is in it.
    """
    above = len(str(root / "x")) - 1
    within = [_in_folder(recipe, str(root), above)]
    while within:
        entry = next(within[-1], None)
        if entry is None:
            within.pop()
        elif not entry.is_dir(follow_symlinks=False):
            yield entry
        elif not recipe.source.passes_over(entry.path[above:]):
            within.append(_in_folder(recipe, entry.path, above))


def _in_folder(recipe: DatasetRecipe, folder: str, above: int) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, ENTRIES_AT_ONCE of them in the order of the names of the files there and below."""
    try:
        with os.scandir(folder) as entries:
            while some := list(itertools.islice(entries, ENTRIES_AT_ONCE)):
                # What is below a folder comes after a file whose name goes on with a letter before the slash.
                yield from sorted(some, key=lambda entry: entry.name + "/" * entry.is_dir(follow_symlinks=False))
    except PermissionError:
        raise ValueError(
            f"dataset {recipe.name}: {folder}: found no permission to read it, expected a readable folder"
            + (f", or '{folder[above:]}/*' in source.exclude" if folder[above:] else "")
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        inside = folder[above:]
        raise ValueError(
            f"dataset {recipe.name}: a folder that begins with {inside[:100]}: found a path of "
            f"{len(os.fsencode(folder))} bytes, longer than the system opens, expected a shorter one, "
            f"or '{inside.split('/')[0]}/*' in source.exclude"
        ) from None


def _unfit_name(name: str) -> str | None:
    """The reason why a name is not a valid file name in the source, or None."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if {"", ".", ".."} & set(name.split("/")):
        return "its name leaves the source"
    return None


def _unfit_entry(entry: os.DirEntry[str], root: Path) -> str | None:
    """The reason why an entry of a folder is not read, or None."""
    if entry.is_symlink():
        if not Path(entry.path).exists():
            return "a broken link"
        if not Path(entry.path).resolve().is_relative_to(root.resolve()):
            return "a link that leaves the folder"
        if entry.is_dir():
            return "a link to a folder"
    if not entry.is_file():
        return "not a file"
    return None if entry.stat().st_size else "empty"


def _objects(recipe: DatasetRecipe, bucket: Bucket, left_out: SortedRows[UnreadName]) -> Iterator[SourceFile]:
    """The objects below a prefix. Names that end in a slash stand for folders and are skipped."""
    try:
        for name, size, etag, _ in bucket.objects():
            if name.endswith("/") or not recipe.selects(name):
                continue
            reason = _unfit_name(name) or (None if size else "empty")
            if reason:
                left_out.append(UnreadName(name.encode(errors="backslashreplace").decode(), reason))
            else:
                yield SourceFile(name, size, f"{size}-{etag}", settled=True)
    except Away as error:
        raise ConnectionError(f"dataset {recipe.name}: {error}") from error
    except (Missing, Unreachable) as error:
        raise ValueError(f"dataset {recipe.name}: {error}") from error


def _nothing_found(recipe: DatasetRecipe, root: Path | Bucket, reasons: Counter[str]) -> str:
    spec = recipe.source
    left_out = "".join(f", {count} left out ({reason})" for reason, count in sorted(reasons.items()))
    if spec.kind == "stdlib":
        return (
            f"dataset {recipe.name}: found no sources of Python's standard library in {root} "
            f"(include {list(spec.include)}){left_out}; expected about 600 .py files. "
            "A Python that ships them compiled or zipped has none: use another, or a source of kind directory"
        )
    expected = "text file" if recipe.images is None else "Parquet file"
    globs = f"include {list(spec.include)}, exclude {list(spec.exclude)}"
    return f"dataset {recipe.name}: found no document in {root} ({globs}){left_out}; expected at least one {expected}"

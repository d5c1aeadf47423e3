"""Scrub: reads the durable tier's files of datasets again, and repairs damaged ones.

A shard of an old snapshot may stay unread for months while its disk decays. So each file that is named by the hash of
its content is read and hashed again. A damaged shard or manifest is replaced from another place that has it undamaged.
If no place has it, the file is renamed: readers then see it as missing, and the next build of its dataset makes it
again from the source. A damaged tokenizer stays, because a build would train another one in its place. A missing file
of a snapshot is reported too, every time until it exists again.

A file that cannot be read is reported and left alone, because an error of a file system is not damage.
"""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slipway.assets.datasets.building.scratch_dir import writing_content
from slipway.assets.datasets.garbage import DAMAGED, files_of
from slipway.assets.datasets.snapshots import pointer
from slipway.trainer.base import atomic, digest, listing, regular_file, removal, verify
from slipway.trainer.base.progress import Meter, OnProgress
from slipway.trainer.objects.origin import Missing, Origin, Unreachable

HASHES = {
    "shards": (".shard", "blake3"),
    "documents": (".parquet", "blake3"),
    "snapshots": (".json", "sha256"),
    "tokenizers": (".json", "sha256"),
}
"""By folder, the suffix of the files whose names are the hashes of their contents, and which hash it is. Segments are
named by what they were made of: they are a cache, and are not read here."""
DIGEST = re.compile("[0-9a-f]{64}")
PUBLISHED = ("shards", "snapshots")
"""The folders whose files other places also have."""
STAYS = "tokenizers"
MISSING = "found no file"
"""The problem of a missing file of a snapshot."""


@dataclass(frozen=True)
class DamagedContent:
    """A missing file, or a file whose content does not match its name."""

    name: str
    """Relative to the tier."""
    problem: str
    """The problem."""
    mended: str = ""
    """The origin of the repaired bytes; empty if no origin had them."""
    snapshots: tuple[str, ...] = ()
    """The snapshots that contain the file; for a manifest, its own snapshot."""
    datasets: tuple[str, ...] = ()
    """The datasets that point at one of these snapshots now, so that a build makes the file again."""


@dataclass(frozen=True)
class Scrubbed:
    """The results of a scrub."""

    files: int
    bytes: int
    damaged: tuple[DamagedContent, ...]
    unread: tuple[str, ...]
    """Files that could not be read, with the reasons."""

    @property
    def lost(self) -> list[DamagedContent]:
        """The damaged files of snapshots that were not repaired. Builds make other files again."""
        return [file for file in self.damaged if not file.mended and (file.snapshots or file.name.startswith(STAYS))]


def scrub(
    durable: Path, origins: Sequence[Origin], on_progress: OnProgress | None = None, part: int = 0, parts: int = 1
) -> Scrubbed:
    """Read and repair the files of the tier, or one of `parts` equal parts of them, as a file's name decides.

    `origins` are asked, in this order, for what is damaged. Builds and trainings may go on meanwhile. Raises OSError
    when a folder cannot be listed, and when the tier cannot be written.
    """
    names = [name for folder in HASHES for name in _files(durable, folder) if _in_part(name, part, parts)]
    sizes = {name: _size(durable / name) for name in names}
    meter = Meter(sum(sizes.values()), len(names))
    damaged = list[DamagedContent]()
    unread = list[str]()
    for name, size in sizes.items():
        try:
            wrong = _fault(durable / name)
        except FileNotFoundError:
            wrong = ""  # garbage collection has removed it since
        except OSError as error:
            unread.append(f"{name}: {error.strerror or error}")
            wrong = ""
        if wrong:
            damaged.append(_mended(durable, DamagedContent(name, wrong), origins))
        meter.add(size, 1)
        if on_progress:
            on_progress(meter.progress())
    for name in _missing(durable):
        if _in_part(name, part, parts) and name not in {file.name for file in damaged}:
            damaged.append(_mended(durable, DamagedContent(name, MISSING), origins))
    return Scrubbed(meter.files, meter.bytes, tuple(with_snapshots(durable, damaged)), tuple(unread))


def is_whole(durable: Path, name: str) -> bool:
    """Whether the file exists with the content that matches its name. Raises OSError."""
    try:
        return not _fault(durable / name)
    except FileNotFoundError:
        return False


def _files(durable: Path, folder: str) -> Iterator[str]:
    """The files of a folder that are named by a hash, in order. Raises OSError if it cannot be listed."""
    suffix, _ = HASHES[folder]
    for name in sorted(listing.names_if_there(durable / folder)):
        if name.endswith(suffix) and DIGEST.fullmatch(name.removesuffix(suffix)):
            yield f"{folder}/{name}"


def _in_part(name: str, part: int, parts: int) -> bool:
    return int(Path(name).stem[:8], 16) % parts == part % parts


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reading the file will report the error
        return 0


def _fault(path: Path) -> str:
    """The fault of a file; empty if the hash of its content matches its name. Raises OSError."""
    try:
        if HASHES[path.parent.name][1] == "blake3":
            verify.file(path, verify.Measured(path.stat().st_size, path.stem))
        else:
            verify.check_sha256(verify.persistently(lambda: regular_file.read(path)), path.stem, path)
    except verify.Mismatch as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def _mended(durable: Path, damaged: DamagedContent, origins: Sequence[Origin]) -> DamagedContent:
    """Replace a damaged file with the right bytes from the first origin that has them; otherwise set it aside."""
    path = durable / damaged.name
    for origin in origins if path.parent.name in PUBLISHED else ():
        data = _read(origin, damaged.name)
        if data is not None and _is(data, path):
            with writing_content(durable):
                atomic.replace(path, data)
            return replace(damaged, mended=str(origin))
    if path.parent.name != STAYS:
        with writing_content(durable):
            removal.rename_file(durable, damaged.name, DAMAGED + path.name)
    return damaged


def _read(origin: Origin, name: str) -> bytes | None:
    """A file of an origin; None if it is missing or unreadable."""
    try:
        with origin.open(name) as stream:
            return stream.read()
    except (Missing, Unreachable):
        return None


def _is(data: bytes, path: Path) -> bool:
    """Whether the hash of these bytes matches the name of a file."""
    kind = HASHES[path.parent.name][1]
    return (digest.of_bytes(data) if kind == "blake3" else digest.sha256(data)) == path.stem


def with_snapshots(durable: Path, damaged: Sequence[DamagedContent]) -> Iterator[DamagedContent]:
    """The damaged files with the snapshots that contain them, and the datasets that point at one of these now."""
    if not damaged:
        return
    named = _named(durable, {file.name for file in damaged})
    current = _current(durable)
    for one in damaged:
        snapshots = set(named.get(one.name, ()))
        snapshots |= {Path(one.name).stem} if one.name.startswith("snapshots/") else set()
        datasets = sorted(dataset for dataset, sha256 in current.items() if sha256 in snapshots)
        yield replace(one, snapshots=tuple(sorted(snapshots)), datasets=tuple(datasets))


def _named(durable: Path, files: Collection[str] | None = None) -> Mapping[str, list[str]]:
    """The files of snapshots, or only the given ones, each with its snapshots."""
    named: dict[str, list[str]] = {}
    for file in _files(durable, "snapshots"):
        parts = set(_parts(durable, Path(file).stem))
        for name in parts if files is None else parts & set(files):
            named.setdefault(name, []).append(Path(file).stem)
    return named


def _parts(durable: Path, sha256: str) -> Iterator[str]:
    """The files of a snapshot, if its manifests can be read."""
    with contextlib.suppress(OSError, ValueError):
        for path in files_of(durable, sha256):
            yield str(path.relative_to(durable))


def _missing(durable: Path) -> list[str]:
    """The missing files of snapshots and of datasets' pointers."""
    with writing_content(durable):  # so that no garbage collection has files set aside
        manifests = {f"snapshots/{sha256}.json" for sha256 in _current(durable).values()}
        return sorted(name for name in {*_named(durable), *manifests} if not (durable / name).exists())


def _current(durable: Path) -> dict[str, str]:
    """The snapshot that each dataset points at, without datasets with an invalid pointer."""
    snapshots = dict[str, str]()
    for dataset in listing.names_if_there(durable / "datasets"):
        with contextlib.suppress(ValueError):  # the next build reports the pointer
            sha256 = pointer.current(durable, dataset)
            if sha256 is not None:
                snapshots[dataset] = sha256
    return snapshots

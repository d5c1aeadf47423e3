"""Scripts: the code of users' trainings, kept on the durable tier under the digest of its content.

``<durable>/scripts/<digest>/`` holds the files as they were when the training was proposed. Every incarnation runs this
copy on every node, however the originals are edited meanwhile. It is verified whenever it is used. A copy that is torn
is made again when the training is proposed again. Symbolic links are refused: what one points to may be anybody's.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, digest, lock, verify

FILES, MEGABYTES = 10_000, 64
"""The most files, and megabytes, that are kept as code."""


@dataclass(frozen=True)
class CodeFile:
    """A file of the code."""

    data: bytes
    executable: bool


def keep(code: Path, durable: Path) -> str:
    """Keep a folder, or a single file; returns the digest. A kept copy that is torn is put aside, and made again.

    Raises ValueError for no code, too much, and a symbolic link; OSError for what cannot be read or written.
    """
    files = _files(code)
    name = _digest(files)
    place = _place(durable, name)
    if not _is_whole(place):
        with lock.exclusive(place.parent):
            if not _is_whole(place):
                _put_aside(place)
                _write(files, place)
    return name


def folder(name: str, durable: Path) -> Path:
    """The folder of the code of this digest, verified. Raises ValueError when it is gone or changed."""
    place = _place(durable, name)
    if not place.is_dir():
        raise ValueError(f"{place}: found nothing, expected the code of the training: materialise its recipe again")
    verify.check_digest("code of the digest", _digest(_files(place)), name, place)
    return place


def _is_whole(place: Path) -> bool:
    """Whether the code of this digest is kept, every byte of it. Raises OSError when it cannot be read."""
    try:
        return _digest(_files(place)) == place.name
    except (ValueError, FileNotFoundError):
        return False


def _put_aside(place: Path) -> None:
    """Move what is not the code of its digest out of the way; a person may want to look into it."""
    if os.path.lexists(place):
        place.rename(place.with_name(f".torn-{place.name}-{time.time_ns()}"))


def _files(code: Path) -> dict[str, CodeFile]:
    """The files of `code` by their paths below it. Raises ValueError and OSError as `keep`."""
    sizes = _sizes(code)
    size = sum(sizes.values())
    if not sizes or len(sizes) > FILES or size > MEGABYTES * 1e6:
        found = f"{len(sizes)} files of {size / 1e6:.0f} MB"
        raise ValueError(f"{code}: found {found}, expected code: 1 to {FILES} files of {MEGABYTES} MB at most")
    root = code if code.is_dir() else code.parent
    return {str(path.relative_to(root)): _file(path) for path in sizes}


def _sizes(code: Path) -> dict[Path, int]:
    """The bytes of each plain file, by name, without what Python compiled and names that begin with a dot."""
    sizes, ahead = dict[Path, int](), [code]
    while ahead:
        path = ahead.pop()
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise ValueError(f"{path}: found a symbolic link, expected a file or a folder: links are not followed")
        if stat.S_ISDIR(found.st_mode):
            ahead += sorted((each for each in path.iterdir() if not _is_passed_over(each.name)), reverse=True)
        elif stat.S_ISREG(found.st_mode):
            sizes[path] = found.st_size
    return sizes


def _is_passed_over(part: str) -> bool:
    return part == "__pycache__" or part.startswith(".")


def _file(path: Path) -> CodeFile:
    """A plain file; one that has become a symbolic link meanwhile is not followed. Raises OSError then."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        return CodeFile(file.read(), bool(os.fstat(descriptor).st_mode & stat.S_IXUSR))


def _digest(files: Mapping[str, CodeFile]) -> str:
    """BLAKE3 over the names, contents and permissions."""
    return digest.of_bytes(
        atomic.canonical_json({name: [digest.of_bytes(file.data), file.executable] for name, file in files.items()})
    )


def _write(files: Mapping[str, CodeFile], place: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    try:
        for name, file in files.items():
            atomic.write(temporary / name, [file.data], 0o755 if file.executable else 0o644)
        temporary.chmod(0o755)
        atomic.show(temporary, place)  # where another host has kept the same code meanwhile, that stays
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _place(durable: Path, name: str) -> Path:
    return durable / "scripts" / digest.checked(name)

"""Scripts: the code of users' trainings, kept on the durable tier under the digest of its content.

``<durable>/scripts/<digest>/`` holds the files as they were when the training was proposed. What runs is what its
identity says, in every incarnation and on every node, however the originals are edited meanwhile.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer import atomic, digest

FILES, MEGABYTES = 10_000, 64
"""The most that counts as code."""


@dataclass(frozen=True)
class File:
    """A file of the code."""

    data: bytes
    executable: bool


def keep(code: Path, durable: Path) -> str:
    """Keep a folder, or a single file; returns the digest. Raises ValueError for what is not there or too much."""
    files = _files(code)
    name = _digest(files)
    if not _place(durable, name).is_dir():
        _write(files, _place(durable, name))
    return name


def folder(name: str, durable: Path) -> Path:
    """The folder of the code of this digest, verified. Raises ValueError when it is gone or changed."""
    place = _place(durable, name)
    if not place.is_dir():
        raise ValueError(f"{place}: found nothing, expected the code of the training")
    found = _digest(_files(place))
    if found != name:
        raise ValueError(f"{place}: found code of the digest {found[:16]}..., expected {name[:16]}...")
    return place


def _files(code: Path) -> dict[str, File]:
    """The files of `code` by their paths below it; what Python compiles and names that begin with a dot are none."""
    if code.is_file():
        return {code.name: _file(code)}
    paths = {path.relative_to(code): path for path in sorted(code.rglob("*")) if path.is_file()}
    chosen = {str(name): path for name, path in paths.items() if not any(map(_is_passed_over, name.parts))}
    size = sum(path.stat().st_size for path in chosen.values())
    if not chosen or len(chosen) > FILES or size > MEGABYTES * 1e6:
        found = f"{len(chosen)} files of {size / 1e6:.0f} MB"
        raise ValueError(f"{code}: found {found}, expected code: 1 to {FILES} files of {MEGABYTES} MB at most")
    return {name: _file(path) for name, path in chosen.items()}


def _is_passed_over(part: str) -> bool:
    return part == "__pycache__" or part.startswith(".")


def _file(path: Path) -> File:
    return File(path.read_bytes(), os.access(path, os.X_OK))


def _digest(files: Mapping[str, File]) -> str:
    """BLAKE3 over the names, contents and permissions."""
    return digest.of_bytes(
        atomic.canonical_json({name: [digest.of_bytes(file.data), file.executable] for name, file in files.items()})
    )


def _write(files: Mapping[str, File], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    try:
        for name, file in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            path.chmod(0o755 if file.executable else 0o644)
        temporary.chmod(0o755)
        temporary.rename(place)
    except OSError:
        if not place.is_dir():  # else somebody else has kept the same
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _place(durable: Path, name: str) -> Path:
    return durable / "scripts" / digest.checked(name)

"""Atomic writes: a file is there with all its bytes, or it is not there.

Every durable fact of the platform becomes visible through one of the two functions here. `create_only`
is the one that decides races: of several writers of the same path exactly one wins.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def create_only(path: Path, data: bytes, scratch: Path | None = None) -> bool:
    """Create `path` with `data`; say False, and change nothing, when it is already there.

    A hard link is the create-only step: unlike ``O_EXCL`` it never shows a half-written file, and
    unlike a rename it never replaces one. The bytes are first written in `scratch`, a folder of the same file
    system, by default the file's own. Raises OSError when a folder cannot be written.
    """
    with _written(path, data, scratch) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def replace(path: Path, data: bytes, scratch: Path | None = None) -> None:
    """Put `data` at `path`, whatever was there; readers see the old bytes or the new ones."""
    with _written(path, data, scratch) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no blanks, so that equal values hash equally."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def readable_json(value: Any) -> bytes:
    """JSON for files that people open too."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def sync_folder(folder: Path) -> None:
    """Make the folder's entries survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _written(path: Path, data: bytes, scratch: Path | None) -> Iterator[Path]:
    """A temporary file for `path` with `data` on disk; gone afterwards unless it was renamed away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=scratch or path.parent)
    temporary = Path(name)
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error.filename = str(path)  # a full disk does not say which file had no room
            raise
        temporary.chmod(0o644)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)

"""Scratch: a folder for a while that does not stay when its process is killed.

Who is killed removes nothing. So a process holds the lock of its scratch folder, which its kernel releases however it
ends, and whoever makes a folder of the same name removes those that nobody holds. For file systems of one machine: on a
network file system, the lock of a process of another machine may not be seen.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder(name: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder ``<name>.<random>`` in `parent`, by default among the temporary files; removed afterwards.

    Those of killed processes are removed first. Raises OSError.
    """
    above = _above(parent)
    above.mkdir(parents=True, exist_ok=True)
    for leftover in abandoned(name, above):
        shutil.rmtree(leftover, ignore_errors=True)
    path, descriptor = _create(name, above)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def abandoned(name: str, parent: Path | None) -> Iterator[Path]:
    """Such folders of this user that no process holds; each is held until the next one is asked for."""
    for path in sorted(_above(parent).glob(f"{glob.escape(name)}.*")):
        if (descriptor := _lock_at_once(path)) is not None:
            try:
                yield path
            finally:
                os.close(descriptor)


def _above(parent: Path | None) -> Path:
    return parent or Path(tempfile.gettempdir())


def _create(name: str, above: Path) -> tuple[Path, int]:
    """A new folder and the descriptor by which its lock is held."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=above))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for one who takes it for abandoned, and removes it
            if path.is_dir():
                return path, descriptor
            os.close(descriptor)


def _lock_at_once(path: Path) -> int | None:
    """The descriptor by which the lock of a folder is held; None where another holds it, or it is nobody's to take."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.geteuid():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None

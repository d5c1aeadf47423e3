"""Scratch: temporary folders that are removed even if their process is killed.

A killed process removes nothing. So a process holds the lock of its scratch folder, which the kernel releases at its
end in any case, and the next process that makes a folder of the same name removes unlocked ones. Use it on file systems
of one machine only: on a network file system, the lock of another machine's process may be invisible.
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
    """Such folders of this user that no process has locked; each stays locked until the next one is requested."""
    for path in sorted(_above(parent).glob(f"{glob.escape(name)}.*")):
        descriptor = _lock_at_once(path)
        if descriptor is not None:
            try:
                yield path
            finally:
                os.close(descriptor)


def _above(parent: Path | None) -> Path:
    return parent or Path(tempfile.gettempdir())


def _create(name: str, above: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=above))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for one who takes it for abandoned, and removes it
            if path.is_dir():
                return path, descriptor
            os.close(descriptor)


def _lock_at_once(path: Path) -> int | None:
    """The descriptor that holds the lock of a folder; None if another process holds it, or it cannot be locked."""
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

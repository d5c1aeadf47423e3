"""Lock: one process at a time on a folder, for work that two would do twice.

The kernel lets go of it when its holder dies, however it dies, so a lock is never left behind. Nothing
that must be right rests on it: a network file system may not honour it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which is made if it is missing; waits for whoever holds it."""
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` together with other sharers; waits while somebody holds it exclusively."""
    with _held(folder, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _held(folder: Path, kind: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)

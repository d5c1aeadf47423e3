"""Lock: one process at a time works on a folder, so that two processes do not do the same work twice.

The kernel releases a lock when its holder dies in any way, so no lock is left behind. Correctness never depends on a
lock: a network file system may ignore it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from slipway.trainer.base import processes

POLL_SECONDS = 0.05


class LockHeld(Exception):
    """Another process holds a lock; the text names it."""


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which is made if it is missing; waits for the process that holds it."""
    with _locked(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def at_once(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` like `exclusive`, without waiting. Raises LockHeld when another process has it."""
    with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextlib.contextmanager
def within(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of `folder` like `exclusive`, but wait for its holder for a limited time; then raises LockHeld."""
    descriptor = _take_within(folder, seconds)
    try:
        yield
    finally:
        os.close(descriptor)


def until_exit(folder: Path, seconds: float) -> None:
    """Take the lock of `folder` as `within` does, and leave it to the kernel to release it.

    Whoever then gets the lock knows that this process has ended, and not only that it is about to.
    """
    _take_within(folder, seconds)


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` together with other sharers; waits while a process holds it exclusively."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    descriptor = _take(folder, kind)
    try:
        yield
    finally:
        os.close(descriptor)


def _take_within(folder: Path, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _take(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except LockHeld:
            if time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def _take(folder: Path, kind: int) -> int:
    """The descriptor that has the lock until it is closed."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        owner = holder_of(descriptor)
        os.close(descriptor)
        raise LockHeld(f"{folder} is locked by {owner}") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def holder_of(descriptor: int) -> str:
    """The process of this machine that holds the lock of an open file, in words."""
    inode = os.fstat(descriptor).st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        # 1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF; a lock that is waited for has "->" as its second word
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode) and fields[4] != "0":
            return f"process {fields[4]} ({processes.command_line(int(fields[4])) or 'which has ended'})"
    return "a process that cannot be seen from here"

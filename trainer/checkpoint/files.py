"""Files of a checkpoint, read with patience and judged by their hash.

A read that fails in passing is asked again before anything is said of the file: what is set aside as damaged must
be damaged. Nothing is mapped into memory, where a bad sector would end the process instead of raising an error.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from blake3 import blake3

from trainer.checkpoint.manifest import File
from trainer.patience import patiently

BLOCK = 8 << 20
"""Bytes read at once."""
PASSING = {errno.EIO, errno.EINTR, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT}
"""Errors that may be gone at the next attempt."""
OF_THE_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO}
"""Errors that say something about the file, and not about who reads it or how it is mounted."""
SECONDS = 5.0
"""How long a passing error may last."""

Value = TypeVar("Value")


class Damaged(Exception):
    """A checkpoint is not what was committed; the message says which file, what was found and expected."""


class _Passing(OSError):
    """Worth another attempt."""


def read(path: Path, begin: int = 0, count: int | None = None) -> bytearray:
    """`count` bytes of a file from `begin` on, by default all that follow. Raises Damaged, and OSError."""
    return _judged(path, lambda: _read(path, begin, count))


def verify(path: Path, expected: File) -> None:
    """Raises Damaged unless the file's size and hash are the expected ones; OSError when that cannot be told.

    A file with another hash is read a second time, from the disk, before it is judged: memory errs too.
    """
    size = _judged(path, lambda: path.stat().st_size)
    if size != expected.bytes:
        raise Damaged(f"{path}: found {size} bytes, expected {expected.bytes}")
    found = hash_of(path)
    if found != expected.blake3:
        _forget(path)
        found = hash_of(path)
    if found != expected.blake3:
        raise Damaged(f"{path}: found BLAKE3 {found[:16]}..., expected {expected.blake3[:16]}...")


def hash_of(path: Path) -> str:
    """BLAKE3 of a file's content, 64 hex digits. Raises Damaged, and OSError."""
    return _judged(path, lambda: _hash(path))


def _read(path: Path, begin: int, count: int | None) -> bytearray:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size - begin if count is None else count
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            got = os.preadv(file.fileno(), [view[done : done + BLOCK]], begin + done)
            if not got:
                raise Damaged(f"{path}: found {begin + done} bytes, expected {begin + size} or more")
            done += got
    return data


def _hash(path: Path) -> str:
    hasher, buffer = blake3(max_threads=blake3.AUTO), bytearray(BLOCK)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while got := os.readv(file.fileno(), [view]):
            hasher.update(view[:got])
    return hasher.hexdigest()


def _forget(path: Path) -> None:
    """Drop what memory holds of the file."""
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _judged(path: Path, attempt: Callable[[], Value]) -> Value:
    """What `attempt` returns, tried again while it fails in passing. Raises Damaged for what the file is to blame."""

    def told_apart() -> Value:
        try:
            return attempt()
        except OSError as error:
            if error.errno in PASSING:
                raise _Passing(error.errno, error.strerror) from error
            raise

    try:
        return patiently(told_apart, _Passing, SECONDS)
    except OSError as error:
        if error.errno in OF_THE_FILE:
            raise Damaged(f"{path}: cannot be read: {error.strerror}") from error
        raise

"""Verification: content is read in blocks, counted and hashed, and compared with the expected size and hash.

All content that Slipway copies, stores or reads back passes through here: shards, checkpoints, uploads, copies between
tiers, stored code. Files are not mapped into memory, because a bad sector would end the process instead of raising an
error.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from blake3 import blake3

from slipway.trainer.base import digest, progress
from slipway.trainer.base.patience import patiently

BLOCK = 8 << 20
"""Bytes read at once."""
PASSING = {errno.EIO, errno.EINTR, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT}
"""Errors of a file system that may be gone at the next attempt."""
SECONDS = 5.0
"""How long such an error may last."""

Value = TypeVar("Value")
Block = TypeVar("Block", bound=bytes | bytearray | memoryview)


class Mismatch(ValueError):
    """Content differs from the expected one; the message has the place, what was found and what is expected."""


class Content(Protocol):
    """The expected content of a file: a manifest's entry."""

    @property
    def bytes(self) -> int: ...

    @property
    def blake3(self) -> str:
        """64 hex digits."""


@dataclass(frozen=True)
class Measured:
    """The measured content of a file."""

    bytes: int
    blake3: str
    """64 hex digits."""


class RunningDigest:
    """Counts and hashes content block by block."""

    def __init__(self, threads: int = 1) -> None:
        self._hasher = blake3(max_threads=threads)
        self.bytes = 0

    def add(self, block: bytes | bytearray | memoryview) -> None:
        self._hasher.update(block)
        self.bytes += len(block)
        progress.BYTE_COUNT.add(len(block))

    def passing(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The blocks, each of which is added before it is yielded."""
        for block in blocks:
            self.add(block)
            yield block

    @property
    def blake3(self) -> str:
        return self._hasher.hexdigest()

    def measured(self) -> Measured:
        """All that was added so far."""
        return Measured(self.bytes, self.blake3)


def matches(actual: Content, expected: Content) -> bool:
    """Whether size and hash are the expected ones; the hash is not computed if the size differs."""
    return actual.bytes == expected.bytes and actual.blake3 == expected.blake3


def check(actual: Content, expected: Content, where: object) -> None:
    """Raises Mismatch, which names `where`, unless size and hash are the expected ones."""
    if actual.bytes != expected.bytes:
        raise Mismatch(f"{where}: found {actual.bytes} bytes, expected {expected.bytes}")
    check_digest("BLAKE3", actual.blake3, expected.blake3, where)


def check_digest(name: str, actual: str, expected: str, where: object) -> None:
    """Raises Mismatch, which names `where` and the kind of digest, unless two digests are the same."""
    if actual != expected:
        raise Mismatch(f"{where}: found {name} {actual[:16]}..., expected {expected[:16]}...")


def check_sha256(data: bytes, expected: str, where: object) -> None:
    """Raises Mismatch unless `data`, a manifest, has this SHA-256."""
    check_digest("SHA-256", digest.sha256(data), expected, where)


def passing(blocks: Iterable[bytes], expected: Content, where: object) -> Iterator[bytes]:
    """The blocks; raises Mismatch at their end, or when they are too many, unless they are as expected.

    The last byte is yielded before the verdict: a result from the blocks counts only when the iterator has ended.
    """
    tally = RunningDigest()
    for block in tally.passing(blocks):
        if tally.bytes > expected.bytes:
            raise Mismatch(f"{where}: found {tally.bytes} bytes or more, expected {expected.bytes}")
        yield block
    check(tally, expected, where)


def data(content: bytes | memoryview, expected: Content, where: object) -> None:
    """Raises Mismatch unless bytes in memory are the expected ones."""
    check(Measured(len(content), digest.of_bytes(content)), expected, where)


def file(path: Path, expected: Content) -> None:
    """Raises Mismatch unless a file's size and hash are the expected ones, and OSError when they cannot be read.

    A file with another hash is read a second time, from the disk, before it is judged: memory errs too.
    """
    size = persistently(lambda: path.stat().st_size)
    if size != expected.bytes:
        raise Mismatch(f"{path}: found {size} bytes, expected {expected.bytes}")
    actual = measure(path)
    if not matches(actual, expected):
        _forget(path)
        actual = measure(path)
    check(actual, expected, path)


def blocks(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    """The content of a file, `size` bytes at a time. Raises OSError."""
    with open(path, "rb", buffering=0) as opened:
        while block := opened.read(size):
            yield block


def is_whole(path: Path, expected: Content) -> bool:
    """Whether a file is there with the expected size and hash. Raises OSError when the file cannot be read."""
    try:
        file(path, expected)
    except (FileNotFoundError, Mismatch):
        return False
    return True


def measure(path: Path) -> Measured:
    """The size and hash of a file. Raises OSError."""
    return persistently(lambda: _measure(path))


def persistently(attempt: Callable[[], Value]) -> Value:
    """The result of `attempt`, which is repeated for `SECONDS` after errors that may pass. Raises OSError."""

    def once() -> Value:
        try:
            return attempt()
        except OSError as error:
            if error.errno in PASSING:
                raise _Passing(error.errno, error.strerror) from error
            raise

    return patiently(once, _Passing, SECONDS)


class _Passing(OSError):
    """Worth another attempt."""


def _measure(path: Path) -> Measured:
    tally = RunningDigest(blake3.AUTO)
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as opened:
        while got := os.readv(opened.fileno(), [view]):
            tally.add(view[:got])
    return tally.measured()


def _forget(path: Path) -> None:
    """Drop the file's pages from the page cache."""
    with open(path, "rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

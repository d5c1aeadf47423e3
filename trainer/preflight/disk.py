"""A folder's disk, or a tier: sequential write and read of one bounded file, without the page cache if possible.

The file has no name, so it vanishes even if the measurement is killed.
"""

import errno
import fcntl
import itertools
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from slipway.trainer.base.units import MIB
from slipway.trainer.preflight.findings import Finding, failed, rate

BLOCK = 8 * MIB
DISK = "disk"
TIER = "tier"
THREADS = 4
"""Blocks in flight at once: one alone does not keep an NVMe disk busy."""


def throughput(folder: Path, size: int, seconds: float, what: str = DISK) -> Iterator[Finding]:
    """GB/s of writing (fsync included) and of reading up to `size` bytes, each for no longer than half the seconds.

    A folder that cannot be written, or is full, is a faulty disk. A tier is shared: a full one is no fault of the node,
    and the caller decides how slow it may be.
    """
    where = f"{folder}: " if what == TIER else ""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            how = "O_DIRECT" if _past_the_cache(file.fileno()) else "fsync, cache dropped"
            for finding in _measured(file.fileno(), size, seconds / 2, how):
                yield replace(finding, name=f"{what} {finding.name}", note=f"{where}{finding.note}")
    except OSError as error:
        missed = failed(what, f"{folder}: {error.strerror}")
        yield replace(missed, verdict="no reference") if what == TIER else missed


def _measured(file: int, size: int, seconds: float, how: str) -> Iterator[Finding]:
    data = os.urandom(BLOCK)  # random bytes, which no file system can compress

    def write(offset: int, block: mmap.mmap) -> None:
        _check_block(os.pwrite(file, block, offset), errno.ENOSPC)

    def read(offset: int, block: mmap.mmap) -> None:
        _check_block(os.preadv(file, [block], offset), errno.EIO)

    begun = time.perf_counter()
    written = _blocks(write, size, seconds, data)
    os.fsync(file)
    writing = time.perf_counter() - begun
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    got = _blocks(read, written, seconds, data)
    reading = time.perf_counter() - begun
    yield rate("write", written / writing / 1e9, "GB/s", note=f"{written >> 20} MiB, {how}")
    yield rate("read", got / reading / 1e9, "GB/s", note=f"{got >> 20} MiB, {how}")


def _check_block(byte_count: int, error: int) -> None:
    """Raises OSError with `error` when only a part of a block was moved: the next attempt would raise it."""
    if byte_count != BLOCK:
        raise OSError(error, os.strerror(error))


def _past_the_cache(file: int) -> bool:
    """Make reads and writes of the file bypass the page cache; returns whether the file system can (tmpfs cannot)."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError:
        return False
    return True


def _blocks(act: Callable[[int, mmap.mmap], None], size: int, seconds: float, data: bytes) -> int:
    """Call `act` for each block of `size` bytes in order until the time is over; returns the bytes done."""
    deadline = time.perf_counter() + seconds
    numbers = itertools.count()  # next() is atomic

    def work() -> int:
        with mmap.mmap(-1, BLOCK) as block:  # O_DIRECT needs aligned memory
            block[:] = data
            for done in itertools.count():
                number = next(numbers)
                if (number + 1) * BLOCK > size or (number >= THREADS and time.perf_counter() > deadline):
                    return done * BLOCK
                act(number * BLOCK, block)
        raise AssertionError

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(future.result() for future in [pool.submit(work) for _ in range(THREADS)])

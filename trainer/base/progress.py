"""Progress of a long copy: bytes, files, rate and time left; and all the bytes that this process has gone through."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CopyProgress:
    """The progress of a copy: the bytes in place, the total, and the rate."""

    bytes: int
    total_bytes: int
    files: int
    total_files: int
    rate: float
    """Bytes per second since the copy began."""

    @property
    def seconds_left(self) -> float | None:
        """None while no byte was copied."""
        return (self.total_bytes - self.bytes) / self.rate if self.rate else None

    def __str__(self) -> str:
        share = self.bytes / self.total_bytes if self.total_bytes else 1.0
        remaining = "?" if self.seconds_left is None else f"{self.seconds_left:.0f}"
        return (
            f"{self.bytes / 1e9:.2f} of {self.total_bytes / 1e9:.2f} GB ({share:.0%}), "
            f"{self.files} of {self.total_files} shards, {self.rate / 1e9:.2f} GB/s, {remaining} s left"
        )


OnProgress = Callable[[CopyProgress], None]
"""Called from time to time with how far a copy is, and once at its end."""


def every(seconds: float, report: OnProgress) -> OnProgress:
    """`report`, called at most once in `seconds`, and at the end of the copy in any case."""
    last = time.monotonic()

    def sparing(progress: CopyProgress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds or progress.bytes == progress.total_bytes:
            last = now
            report(progress)

    return sparing


class Stopped(Exception):
    """The copy stopped because another part of it failed."""


@dataclass
class Meter:
    """Counts the bytes of one copy's threads; each calls it between two chunks, so it can also stop them."""

    total_bytes: int
    total_files: int
    bytes: int = 0
    """In place, including bytes from before."""
    files: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._found_bytes = self.bytes

    def add(self, count: int, files: int = 0) -> None:
        """Count bytes (negative for discarded ones) and files. Raises Stopped once `stopped` is set."""
        with self._lock:
            self.bytes += count
            self.files += files
        if self.stopped:
            raise Stopped

    def progress(self) -> CopyProgress:
        seconds = time.monotonic() - self._began
        rate = max(0, self.bytes - self._found_bytes) / seconds if seconds else 0.0
        return CopyProgress(self.bytes, self.total_bytes, self.files, self.total_files, rate)


class ByteCount:
    """The bytes that the threads of this process have read, copied or hashed; it only grows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0

    def add(self, count: int) -> None:
        with self._lock:
            self._bytes += count

    def __call__(self) -> int:
        return self._bytes


BYTE_COUNT = ByteCount()
"""Bytes copied or verified by this process, block by block: the progress of a rank that copies for hours."""

"""Progress of a long copy: bytes, files, rate and time left, counted by the threads that copy."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """How far a copy is: what is in place, of what there will be, and how fast it came."""

    bytes: int
    total_bytes: int
    files: int
    total_files: int
    rate: float
    """Bytes per second that were put in place since the copy began."""

    @property
    def seconds_left(self) -> float | None:
        """None while nothing has come."""
        return (self.total_bytes - self.bytes) / self.rate if self.rate else None

    def __str__(self) -> str:
        share = self.bytes / self.total_bytes if self.total_bytes else 1.0
        left = "?" if self.seconds_left is None else f"{self.seconds_left:.0f}"
        return (
            f"{self.bytes / 1e9:.2f} of {self.total_bytes / 1e9:.2f} GB ({share:.0%}), "
            f"{self.files} of {self.total_files} shards, {self.rate / 1e9:.2f} GB/s, {left} s left"
        )


Report = Callable[[Progress], None]
"""Told now and then how far a copy is, and when it is through."""


def every(seconds: float, report: Report) -> Report:
    """`report`, called at most once in `seconds`, and at the end of the copy in any case."""
    last = time.monotonic()

    def sparing(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds or progress.bytes == progress.total_bytes:
            last = now
            report(progress)

    return sparing


class Stopped(Exception):
    """The copy was given up because another part of it failed."""


@dataclass
class Meter:
    """Counts what the threads of one copy do; each asks it between two chunks, so that it can stop them too."""

    total_bytes: int
    total_files: int
    bytes: int = 0
    """In place, those that were there before included."""
    files: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began, self._found = time.monotonic(), self.bytes

    def add(self, count: int, files: int = 0) -> None:
        """Count bytes, fewer for what turned out to be worthless, and files. Raises Stopped once `stopped` is set."""
        with self._lock:
            self.bytes += count
            self.files += files
        if self.stopped:
            raise Stopped

    def progress(self) -> Progress:
        seconds = time.monotonic() - self._began
        rate = max(0, self.bytes - self._found) / seconds if seconds else 0.0
        return Progress(self.bytes, self.total_bytes, self.files, self.total_files, rate)

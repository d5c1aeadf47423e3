"""Heartbeats: each rank's phase and place, at most once a second, in a file of its own that is replaced.

The working threads move the rank's position in memory, and another thread (`slipway.trainer.record.record_writer`)
writes it. So a rank whose training thread hangs still writes heartbeats, with the same position. A reader distinguishes
"alive but stuck" from "working" by the position, and measures the time by its own clock. The times in a heartbeat are
only for people.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec
from slipway.trainer.record import files
from slipway.trainer.record.fence import Token

INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class RankPlace:
    """Where a rank is; two places that differ are progress."""

    phase: str
    """See `slipway.trainer.record.phases`."""
    step: int
    done: int = 0
    """The progress within the phase, in the phase's unit; 0 if only steps are counted."""


@dataclass(frozen=True)
class Beat:
    """A heartbeat of one rank. Times are seconds since the epoch, by the clock of the rank's node."""

    rank: int
    phase: str
    step: int
    at: float
    progress_at: float
    done: int = 0
    """Missing, with the fields below, in a heartbeat of an earlier version."""
    section: str = ""
    """The part of a step in which the rank is: data, forward, backward, optimizer, communication; empty elsewhere."""
    longest: float = 0.0
    """Seconds of the longest of the rank's last steps; 0 before there are enough of them."""
    own: float = 0.0
    """Median seconds of its last steps in which it waited for no other rank; 0 before there are enough of them."""
    node: str = ""
    validated: float = 0.0
    """Seconds of the rank's longest validation; 0 before it has gone through one, and in an earlier version."""

    @property
    def progress(self) -> RankPlace:
        return RankPlace(self.phase, self.step, self.done)


class Position:
    """Where this rank is, in memory: to move it waits for nothing."""

    def __init__(self) -> None:
        self._now: tuple[str, int, Callable[[], int], int] = ("", 0, _nothing, 0)
        self.section: Callable[[], str] = str
        """Where in a step the rank is; any thread may call it."""
        self.pace = (0.0, 0.0)
        """`Beat.longest` and `Beat.own`."""
        self.validated = 0.0
        """`Beat.validated`."""

    def enter(self, phase: str, step: int, count: Callable[[], int] | None = None) -> None:
        """This rank is in `phase` at `step`.

        `count` returns the work so far, in the phase's unit; it only grows, and any thread may call it.
        """
        count = count or _nothing
        self._now = (phase, step, count, count())

    @property
    def phase(self) -> str:
        return self._now[0]

    def progress(self) -> RankPlace:
        phase, step, count, before = self._now
        return RankPlace(phase, step, count() - before)


class Heartbeat:
    """Writes the heartbeat of one rank."""

    def __init__(self, folder: Path, token: Token, rank: int) -> None:
        self._path = files.named(folder, files.HEARTBEATS, f"{token}.{rank:05d}")
        self._rank = rank
        self._node = os.environ.get("SLIPWAY_NODE", "local")
        self._progress: RankPlace | None = None
        self._progress_at = 0.0
        self._written_phase = ""
        self._written_at = 0.0

    def beat(
        self,
        phase: str,
        step: int,
        done: int = 0,
        section: str = "",
        pace: tuple[float, float] = (0.0, 0.0),
        validated: float = 0.0,
    ) -> None:
        """This rank is at this place; written when the phase is new or the last heartbeat is a second old.

        Raises OSError.
        """
        now = time.time()
        progress = RankPlace(phase, step, done)
        if progress != self._progress:
            self._progress = progress
            self._progress_at = now
        if phase == self._written_phase and now - self._written_at < INTERVAL_SECONDS:
            return
        beat = Beat(self._rank, phase, step, now, self._progress_at, done, section, *pace, self._node, validated)
        atomic.replace(self._path, codec.encode(beat), lasting=False)
        self._written_phase = phase
        self._written_at = now


def read(folder: Path, token: Token) -> list[Beat]:
    """The last beat of each rank under `token`, by rank. Raises OSError.

    One that cannot be decoded is left out: it is replaced within a second.
    """
    beats = []
    for name in files.names(folder, files.HEARTBEATS):
        if not name.startswith(f"{token}."):
            continue
        try:
            beats.append(codec.read(files.named(folder, files.HEARTBEATS, name), Beat))
        except codec.UndecodableRecord:
            continue
    return beats


def _nothing() -> int:
    return 0

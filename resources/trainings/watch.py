"""The watch over trainings: for how long each rank has been seen at one place, and whether anything has changed at all.

The clocks of two machines order nothing, so an age is never a difference of a heartbeat's time and a clock's. A reader
counts from when it first saw the place. What it did not watch does not count: a reader that was away, or stood still on
a frozen store itself, adds `LONGEST_LOOK` at most. A new process begins anew, so a restart only prolongs.

Who follows a hundred trainings reads those alone that have left a trace (`TrainingTraces`): a record that decides, or a
line of the ledger. A job may die without a trace, so that a look is due after some seconds in any case.
"""

import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.trainer.base import atomic, listing
from slipway.trainer.base.units import HOUR
from slipway.trainer.record import files
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Beat, RankPlace
from slipway.trainer.record.phases import STARTING, VALIDATING

LONGEST_LOOK = 60.0
"""Seconds that count at most between two looks; more than a sensor's interval with its slowest tick."""
LONGEST_REST = LONGEST_LOOK / 2
"""A look is due after so long in any case."""
FORGOTTEN_SECONDS = HOUR
"""After so long without a look, a training is forgotten: it has ended, or somebody else watches it."""
LOOK_SECONDS = 5.0
"""A job that died without a word is found so late at most."""
DECISIVE = (files.DESIRED, files.EXITS, files.COMMITS)
"""The folders whose records change what is to be done for a training that runs. Who claims notes it in the ledger."""


@dataclass(frozen=True)
class Sight:
    """A rank as it was seen."""

    rank: int | None
    """None before any rank has written a heartbeat."""
    progress: RankPlace
    age: float
    """Seconds for which it has been seen there."""
    section: str = ""
    """The part of a step in which it is; empty elsewhere, and between parts."""
    longest: float = 0.0
    """Seconds of the longest of its last steps, or while it validates, of its longest validation; 0 where that is not
    known."""
    node: str = ""
    silent: float = 0.0
    """Seconds for which its heartbeat has been seen unchanged: a process that runs changes it every second."""
    stamp: float = 0.0
    """The time in its heartbeat, by its node's clock: it only tells one heartbeat from the next."""


@dataclass
class _WatchState:
    """What was seen of one incarnation and generation."""

    looked: float
    sights: Mapping[int | None, Sight] = field(default_factory=dict)
    until: float = 0.0
    """No look is due before."""


class ProgressWatch:
    """The observations of one process; any of its threads may look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[tuple[Path, Token], _WatchState] = {}
        self._swept = clock()

    def look(self, folder: Path, token: Token, beats: Iterable[Beat]) -> list[Sight]:
        """Take in the heartbeats of a training that runs under `token`; every rank with the age of its place."""
        with self._lock:
            now = self._clock()
            before = self._states.get((folder, token), _WatchState(now))
            passed = min(now - before.looked, LONGEST_LOOK)
            sights: dict[int | None, Sight] = {
                beat.rank: _sight(beat, before.sights.get(beat.rank), passed) for beat in beats
            }
            sights = sights or {None: _without_heartbeat(before.sights.get(None), passed)}
            self._forget(now)
            self._states[folder, token] = _WatchState(now, sights)
        return list(sights.values())

    def rest(self, folder: Path, token: Token, seconds: float) -> None:
        """No look is due for so long: nothing can be over its deadline before."""
        with self._lock:
            if (state := self._states.get((folder, token))) is not None:
                state.until = state.looked + min(seconds, LONGEST_REST)

    def rests(self, folder: Path, token: Token) -> bool:
        """Whether no look is due yet, so that the heartbeats need not be read."""
        with self._lock:
            state = self._states.get((folder, token))
            return state is not None and self._clock() < state.until

    def restart(self, folder: Path, token: Token) -> None:
        """Count from now: what kept the ranks from writing was no fault of theirs."""
        with self._lock:
            self._states.pop((folder, token), None)

    def _forget(self, now: float) -> None:
        """Forget what nobody looks at any more; of a thousand trainings, not each look goes through all."""
        if now - self._swept < LONGEST_LOOK:
            return
        self._swept = now
        for key in [key for key, state in self._states.items() if now - state.looked > FORGOTTEN_SECONDS]:
            del self._states[key]


WATCH = ProgressWatch()
"""The watch of this process: a sensor's ticks share it."""


def is_writable(folder: Path) -> bool:
    """Whether a rank could write a heartbeat now: the store may be full, read-only or away."""
    probe = folder / files.HEARTBEATS / f".{uuid.uuid4().hex}.probe"
    try:
        atomic.replace(probe, b"probe")
        probe.unlink()
    except OSError:
        return False
    return True


@dataclass
class _Followed:
    """What one training was like at the last look. Paths are texts: some are asked for at each look."""

    folders: tuple[str, ...]
    ledger: str
    looked: float = -math.inf
    trace: tuple[int, ...] = ()
    listed: int = -1
    """When the folder of the ledger was changed, as the list of its segments is of then."""
    segments: tuple[str, ...] = ()

    def now(self) -> tuple[int, ...]:
        """When each folder was changed, and how long each segment of the ledger is. Raises OSError."""
        if (changed := _changed(self.ledger)) != self.listed:
            self.segments = tuple(f"{self.ledger}/{name}" for name in listing.names_if_there(Path(self.ledger)))
            self.listed = changed
        return (changed, *map(_changed, self.folders), *map(_size, self.segments))


@dataclass
class TrainingTraces:
    """What one process saw of the trainings that it follows."""

    clock: Callable[[], float] = time.monotonic
    _followed: dict[Path, _Followed] = field(default_factory=dict)

    def is_new(self, folder: Path) -> bool:
        """Whether a look at a training is due; the look counts as taken. Raises OSError."""
        followed = self._followed.get(folder)
        if followed is None:
            decisive = tuple(f"{folder}/{name}" for name in DECISIVE)
            followed = self._followed[folder] = _Followed(decisive, f"{folder}/{files.LEDGER}")
        now = self.clock()
        trace = followed.now()
        if trace == followed.trace and now - followed.looked < LOOK_SECONDS:
            return False
        followed.looked, followed.trace = now, trace
        return True

    def forget(self, folder: Path) -> None:
        """Look again the next time, whatever has changed."""
        self._followed.pop(folder, None)


def _sight(beat: Beat, before: Sight | None, passed: float) -> Sight:
    age = before.age + passed if before and before.progress == beat.progress else 0.0
    silent = before.silent + passed if before and before.stamp == beat.at else 0.0
    longest = beat.validated if beat.phase == VALIDATING.name else beat.longest
    return Sight(beat.rank, beat.progress, age, beat.section, longest, beat.node, silent, beat.at)


def _without_heartbeat(before: Sight | None, passed: float) -> Sight:
    """No rank has written a heartbeat yet."""
    return Sight(None, RankPlace(STARTING.name, 0), before.age + passed if before else 0.0)


def _changed(folder: str) -> int:
    """When a folder was changed; 0 where there is none."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116
    except FileNotFoundError:
        return 0


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0

"""Training watch: how long each rank has made no progress, and whether a training has changed at all.

The clocks of two machines cannot be compared, so an age is never the difference between a heartbeat's time and a clock.
A reader counts from when it first saw a rank's position. Time that it did not observe does not count: a reader that was
away, or was itself blocked by a frozen store, adds at most `LONGEST_LOOK`. A new process starts to count again, so its
restart only prolongs a deadline.
A process that follows a hundred trainings reads only those that have changed (`TrainingTraces`): with a new decisive
record or a new line of the ledger. A job may die without a trace, so each training is also read after some seconds.
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
"""The maximum number of seconds that count between two observations; longer than a sensor's slowest tick."""
LONGEST_REST = LONGEST_LOOK / 2
"""The longest time between two observations."""
FORGOTTEN_SECONDS = HOUR
"""The time after which an unobserved training is forgotten: it has ended, or another process watches it."""
LOOK_SECONDS = 5.0
"""The longest delay until the death of a job without a trace is noticed."""
DECISIVE = (files.DESIRED, files.EXITS, files.COMMITS)
"""The folders whose records change what must be done for a running training. Claims are also noted in the ledger."""


@dataclass(frozen=True)
class Sight:
    """An observation of a rank."""

    rank: int | None
    """None before any rank has written a heartbeat."""
    progress: RankPlace
    age: float
    """The seconds without progress."""
    section: str = ""
    """The current section of a step; empty outside of steps and between sections."""
    longest: float = 0.0
    """The seconds of its longest recent step, or during a validation, of its longest validation; 0 if unknown."""
    node: str = ""
    silent: float = 0.0
    """The seconds for which its heartbeat has not changed. A running process changes it every second."""
    stamp: float = 0.0
    """The time in its heartbeat, by its node's clock; used only to distinguish heartbeats."""


@dataclass
class _WatchState:
    """The observations of one generation of an incarnation."""

    looked: float
    sights: Mapping[int | None, Sight] = field(default_factory=dict)
    until: float = 0.0
    """The time of the next observation."""


class ProgressWatch:
    """The observations of one process. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[tuple[Path, Token], _WatchState] = {}
        self._swept = clock()

    def look(self, folder: Path, token: Token, beats: Iterable[Beat]) -> list[Sight]:
        """Record the heartbeats of a training that runs with `token`; returns every rank with its age."""
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
        """Skip observations for `seconds`, since no rank can exceed its deadline before."""
        with self._lock:
            state = self._states.get((folder, token))
            if state is not None:
                state.until = state.looked + min(seconds, LONGEST_REST)

    def rests(self, folder: Path, token: Token) -> bool:
        """Whether no observation is due yet, so that the heartbeats need not be read."""
        with self._lock:
            state = self._states.get((folder, token))
            return state is not None and self._clock() < state.until

    def restart(self, folder: Path, token: Token) -> None:
        """Count from now on, since the ranks were not to blame for missing heartbeats."""
        with self._lock:
            self._states.pop((folder, token), None)

    def _forget(self, now: float) -> None:
        """Forget trainings that are no longer observed. It runs rarely, since there may be a thousand of them."""
        if now - self._swept < LONGEST_LOOK:
            return
        self._swept = now
        for key in [key for key, state in self._states.items() if now - state.looked > FORGOTTEN_SECONDS]:
            del self._states[key]


WATCH = ProgressWatch()
"""The watch of this process, which the ticks of a sensor share."""


def is_writable(folder: Path) -> bool:
    """Whether a rank could write a heartbeat now. The store may be full, read-only or away."""
    probe = folder / files.HEARTBEATS / f".{uuid.uuid4().hex}.probe"
    try:
        atomic.replace(probe, b"probe")
        probe.unlink()
    except OSError:
        return False
    return True


@dataclass
class _Followed:
    """The state of one training at the last observation. Paths are strings, since `stat` on strings is faster."""

    folders: tuple[str, ...]
    ledger: str
    looked: float = -math.inf
    trace: tuple[int, ...] = ()
    listed: int = -1
    """The modification time of the ledger's folder when its segments were listed."""
    segments: tuple[str, ...] = ()

    def now(self) -> tuple[int, ...]:
        """The modification times of the folders, and the sizes of the ledger's segments. Raises OSError."""
        changed = _changed(self.ledger)
        if changed != self.listed:
            self.segments = tuple(f"{self.ledger}/{name}" for name in listing.names_if_there(Path(self.ledger)))
            self.listed = changed
        return (changed, *map(_changed, self.folders), *map(_size, self.segments))


@dataclass
class TrainingTraces:
    """The traces of the trainings that one process follows."""

    clock: Callable[[], float] = time.monotonic
    _followed: dict[Path, _Followed] = field(default_factory=dict)

    def is_new(self, folder: Path) -> bool:
        """Whether a training must be read now; a True answer counts as a reading. Raises OSError."""
        followed = self._followed.get(folder)
        if followed is None:
            decisive = tuple(f"{folder}/{name}" for name in DECISIVE)
            followed = self._followed[folder] = _Followed(decisive, f"{folder}/{files.LEDGER}")
        now = self.clock()
        trace = followed.now()
        if trace == followed.trace and now - followed.looked < LOOK_SECONDS:
            return False
        followed.looked = now
        followed.trace = trace
        return True

    def forget(self, folder: Path) -> None:
        """Read the training again next time, even if nothing has changed."""
        self._followed.pop(folder, None)


def _sight(beat: Beat, before: Sight | None, passed: float) -> Sight:
    age = before.age + passed if before and before.progress == beat.progress else 0.0
    silent = before.silent + passed if before and before.stamp == beat.at else 0.0
    longest = beat.validated if beat.phase == VALIDATING.name else beat.longest
    return Sight(beat.rank, beat.progress, age, beat.section, longest, beat.node, silent, beat.at)


def _without_heartbeat(before: Sight | None, passed: float) -> Sight:
    """The observation before any rank has written a heartbeat."""
    age = before.age + passed if before else 0.0
    return Sight(None, RankPlace(STARTING.name, 0), age)


def _changed(folder: str) -> int:
    """The modification time of a folder in nanoseconds; 0 if it is missing."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116
    except FileNotFoundError:
        return 0


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0

"""Stragglers: ranks whose own part of a step takes much longer than that of the others, for a while.

A rank's own part of a step is the time in which it waits for no other rank; with waits, a step takes the same time on
all ranks. Each rank is compared with all others, not with all ranks, so that one of two ranks can be slow. The pace of
a rank (`StepPace`) comes from its last steps; deadlines follow from it too.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slipway.trainer.elastic.outliers import median, sigmas

PACE_WINDOW = 64
FEWEST_STEPS = 16
"""Before this many steps there is no pace: the first steps warm up."""
OWN_SECONDS = 20.0
"""The own part is measured over the steps of this time, at most `FEWEST_STEPS`. Of long steps, more would be minutes
old: a rank that has become slow would seem well for that time."""
OWN_FEWEST = 5
"""It is measured over at least this many steps: one or two of them may be slow by chance."""
LEAST_DEVIATION = 0.1
"""Ranks within a tenth of one another count as equally fast."""
HALF_AS_LONG_AGAIN = 1.5
"""A rank that is slow by a smaller factor costs the others little, even if these are all equally fast."""
SHORTEST = 1e-3
"""Seconds; differences between shorter own parts are noise of the machine."""


def slow_ranks(own: Mapping[int, float], least_sigmas: float) -> dict[int, float]:
    """The slow ranks, each with its own part relative to the median of the others.

    own: median seconds by rank. least_sigmas: robust standard deviations from which on a rank is slow.
    """
    ratios = {}
    for rank, seconds in own.items():
        others = [other_seconds for other, other_seconds in own.items() if other != rank]
        if not others or seconds < SHORTEST:
            continue
        middle = median(others)
        far = sigmas(seconds, others, LEAST_DEVIATION) >= least_sigmas
        if far and seconds >= HALF_AS_LONG_AGAIN * middle:
            ratios[rank] = seconds / max(middle, SHORTEST)
    return ratios


@dataclass
class SlowRanks:
    """The ranks that are slow, and since when. One new figure that is not slow ends a rank's time."""

    persists: float
    """Seconds for which a rank must be slow before it is reported."""
    since: dict[int, float] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)

    def look(self, slow: Mapping[int, float], advanced_ranks: Collection[int], now: float) -> list[int]:
        """The ranks that have now been slow for long enough; each is reported once while it stays slow.

        advanced_ranks: the ranks with new figures of a step; the state of the others does not change. now: seconds, by
        the reader's own clock.
        """
        waiting_since = {rank: since for rank, since in self.since.items() if rank not in advanced_ranks}
        self.since = {**waiting_since, **{rank: self.since.get(rank, now) for rank in slow if rank in advanced_ranks}}
        self.reported &= self.since.keys()
        due = [rank for rank in slow if rank in advanced_ranks and now - self.since[rank] >= self.persists]
        due = [rank for rank in due if rank not in self.reported]
        self.reported.update(due)
        return due


class StepPace:
    """The last steps of one rank. To add one takes a few microseconds."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=PACE_WINDOW)
        self._own: deque[float] = deque(maxlen=FEWEST_STEPS)

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last steps; 0 before there is one."""
        return max(self._steps, default=0.0)

    def add(self, seconds: float, own: float) -> tuple[float, float]:
        """Add a step of `seconds`, of which the rank spent `own` without waiting.

        Returns the seconds of the longest of the last steps, and the median of the own seconds of the newest; both are
        0 before there are enough steps.
        """
        self._steps.append(seconds)
        self._own.append(own)
        if len(self._steps) < FEWEST_STEPS:
            return 0.0, 0.0
        return max(self._steps), median(list(self._own)[-self._recent() :])

    def _recent(self) -> int:
        """The number of the newest steps that took `OWN_SECONDS` together, from `OWN_FEWEST` to `FEWEST_STEPS`."""
        spent = 0.0
        count = 0
        for seconds in reversed(self._steps):
            spent = spent + seconds
            count = count + 1
            if spent >= OWN_SECONDS:
                break
        return max(OWN_FEWEST, min(FEWEST_STEPS, count))

"""Stragglers: the ranks whose own part of a step takes much longer than that of the others, for a while. Pure.

A rank's own part is the time in which it waits for no other: what waits takes as long everywhere. Each rank is held
against all others and not against all, so that of two ranks one can be slow too. How long its last steps took says its
pace (`StepPace`), from which deadlines are found too.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slipway.trainer.elastic.outliers import median, sigmas

PACE_WINDOW = 64
FEWEST_STEPS = 16
"""Before so many steps nothing is said: the first ones warm up."""
OWN_SECONDS = 20.0
"""The own part is of the steps of so many seconds, `FEWEST_STEPS` at most: where steps are long, more of them would be
minutes old, and a rank that has become slow would look well for as long."""
OWN_FEWEST = 5
"""So many steps in any case: one or two of them may be slow by chance."""
LEAST_DEVIATION = 0.1
"""Ranks within a tenth of one another are alike."""
HALF_AS_LONG_AGAIN = 1.5
"""A rank that is not slower than this costs the others little, however alike they are."""
SHORTEST = 1e-3
"""Seconds; steps whose own part is shorter are the machine's noise."""


def slow_ranks(own: Mapping[int, float], least_sigmas: float) -> dict[int, float]:
    """How many times as long as the others' the own part of each slow rank takes.

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
    """Which ranks have been slow for how long. A rank that is seen and is not slow once begins anew."""

    persists: float
    """Seconds for which a rank must be slow before it is reported."""
    since: dict[int, float] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)

    def look(self, slow: Mapping[int, float], advanced_ranks: Collection[int], now: float) -> list[int]:
        """The ranks that have been slow for long enough now, each once as long as it stays slow.

        seen: the ranks whose figures are new and of a step; nothing is known of any other, which stays as it was. now:
        seconds, by the reader's own clock.
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
        """Take in a step that took so many seconds, `own` of them without waiting.

        Returns the seconds of the longest of the last steps, and the median of the own ones of the very last; 0 before
        there are enough.
        """
        self._steps.append(seconds)
        self._own.append(own)
        if len(self._steps) < FEWEST_STEPS:
            return 0.0, 0.0
        return max(self._steps), median(list(self._own)[-self._recent() :])

    def _recent(self) -> int:
        """How many of the last steps took `OWN_SECONDS` together."""
        spent, count = 0.0, 0
        for seconds in reversed(self._steps):
            spent, count = spent + seconds, count + 1
            if spent >= OWN_SECONDS:
                break
        return max(OWN_FEWEST, min(FEWEST_STEPS, count))

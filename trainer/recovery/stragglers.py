"""Stragglers: the ranks whose own part of a step takes much longer than that of the others, for a while. Pure.

A rank's own part is the time in which it waits for no other: what waits takes as long everywhere. Each rank is held
against all others and not against all, so that of two ranks one can be slow too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from slipway.trainer.recovery.statistics import median, sigmas

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
    found = {}
    for rank, seconds in own.items():
        others = [each for other, each in own.items() if other != rank]
        if not others or seconds < SHORTEST:
            continue
        middle = median(others)
        far = sigmas(seconds, others, LEAST_DEVIATION) >= least_sigmas
        if far and seconds >= HALF_AS_LONG_AGAIN * middle:
            found[rank] = seconds / max(middle, SHORTEST)
    return found


@dataclass
class SlowRanks:
    """Which ranks have been slow for how long. A rank that is seen and is not slow once begins anew."""

    persists: float
    """Seconds for which a rank must be slow before it is reported."""
    since: dict[int, float] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)

    def look(self, slow: Mapping[int, float], seen: Collection[int], now: float) -> list[int]:
        """The ranks that have been slow for long enough now, each once as long as it stays slow.

        seen: the ranks whose figures are new and of a step; nothing is known of any other, which stays as it was. now:
        seconds, by the reader's own clock.
        """
        unseen = {rank: since for rank, since in self.since.items() if rank not in seen}
        self.since = {**unseen, **{rank: self.since.get(rank, now) for rank in slow if rank in seen}}
        self.reported &= self.since.keys()
        due = [rank for rank in slow if rank in seen and now - self.since[rank] >= self.persists]
        due = [rank for rank in due if rank not in self.reported]
        self.reported.update(due)
        return due

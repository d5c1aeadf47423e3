"""Turns: decides which of many waiting trials to check now. Pure except for the clock.

A trial that waits at a rung has no process, so only a person can change it. In a sweep with a thousand trials nearly
all of them wait, so each has its turn once in a few seconds, and a poll checks only some of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS = 5.0
"""Seconds between two turns of a trial, which is the longest delay of a person's request."""
GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are evenly spread between 0 and 1 (Knuth 6.4)."""


@dataclass
class Turns:
    """The turns of trials, by number."""

    clock: Callable[[], float] = time.monotonic
    _next: dict[int, float] = field(default_factory=dict)

    def is_due(self, number: int) -> bool:
        """Whether it is this trial's turn, which then counts as taken. The first turns are spread over `SECONDS`."""
        now = self.clock()
        if now < self._next.setdefault(number, now + number * GOLDEN % 1 * SECONDS):
            return False
        self._next[number] = now + SECONDS
        return True

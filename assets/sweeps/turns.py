"""Turns: which of many trials that wait are looked at now. Pure but for the clock.

A trial that waits at a rung has no process, so that only a person changes anything about it. A sweep of a thousand
trials has nearly all of them wait at a time: each has its turn once in some seconds, and a poll looks at a few.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS = 5.0
"""Each has a turn once in so many seconds: what a person asks of it is heeded so late at most."""
GOLDEN = 0.6180339887498949
"""Multiples of it, less their whole part, fall evenly between 0 and 1 (Knuth 6.4)."""


@dataclass
class Turns:
    """The turns of trials, by number."""

    clock: Callable[[], float] = time.monotonic
    _next: dict[int, float] = field(default_factory=dict)

    def is_due(self, number: int) -> bool:
        """Whether it is the turn of this one, which counts as taken; the first turns are spread over `SECONDS`."""
        now = self.clock()
        if now < self._next.setdefault(number, now + number * GOLDEN % 1 * SECONDS):
            return False
        self._next[number] = now + SECONDS
        return True

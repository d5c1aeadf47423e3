"""Standstill: a process that somebody has stopped, and that nobody lets go on.

A stopped process (SIGSTOP) does not end, so that whoever waits for its end waits for ever. The other nodes of a job
take it for lost after `slipway.trainer.supervisor.pulse.LOST_SECONDS` and go on without it; to have it back, or not to
lose it, it must be ended. Nothing else looks like it: a process that waits for a disk or for a processor has another
state.
"""

import time
from collections.abc import Callable

from slipway.trainer.diagnosis import stacks

STOPPED = "T"
LONGEST_SECONDS = 5.0
"""A process that stands still for longer is ended. Tools that look into a process stop it for less than a second."""


class Standstill:
    """For how long each of some processes has been stopped, by the clock of who looks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since = clock, dict[int, float]()

    def is_over_long(self, pid: int) -> bool:
        """Whether a process has been seen stopped, and never otherwise, for more than `LONGEST_SECONDS`."""
        if stacks.state(pid) != STOPPED:
            self._since.pop(pid, None)
            return False
        return self._clock() - self._since.setdefault(pid, self._clock()) > LONGEST_SECONDS

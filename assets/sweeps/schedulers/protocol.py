"""What a scheduler gives: verdicts, and what goes on, as events that the log does not have yet."""

from typing import Protocol

from slipway.assets.sweeps.events import Asked, Decided, Resumed
from slipway.assets.sweeps.state import SweepState


class SweepScheduler(Protocol):
    """Pure functions of the state of a sweep."""

    def until(self, number: int, step: int) -> int:
        """Where trial `number` pauses that begins at `step` or goes on from there; the full length if nowhere."""

    def judge(self, sweep: SweepState) -> Decided | None:
        """The first verdict that is due, whether or not a slot is free."""

    def go_on(self, sweep: SweepState) -> Resumed | Asked | None:
        """For a free slot: the trial that goes on from its commit, or a child that begins at another's; None if a new
        trial is better, or there is nothing to go on with."""

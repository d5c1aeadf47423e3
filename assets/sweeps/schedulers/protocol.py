"""The interface of schedulers: verdicts and trials that continue, as events that are not in the log yet."""

from typing import Protocol

from slipway.assets.sweeps.events import Decided, Proposed, Resumed
from slipway.assets.sweeps.state import SweepState


class SweepScheduler(Protocol):
    """Pure functions of the state of a sweep."""

    def until(self, number: int, step: int) -> int:
        """The next step at which trial `number` pauses, if it starts or continues at `step`; else the full length."""

    def judge(self, sweep: SweepState) -> Decided | None:
        """The first due verdict, whether a slot is free or not."""

    def go_on(self, sweep: SweepState) -> Resumed | Proposed | None:
        """The trial that continues in a free slot, or a child that starts from another's commit; None if a new trial
        is better, or if there is no such trial."""

"""No scheduler: every trial trains at full length, and nothing is compared."""

from dataclasses import dataclass

from slipway.assets.sweeps.state import SweepState


@dataclass(frozen=True)
class FullLength:
    """Every trial trains `steps`."""

    steps: int

    def until(self, number: int, step: int) -> int:
        return self.steps

    def judge(self, sweep: SweepState) -> None:
        return None

    def go_on(self, sweep: SweepState) -> None:
        return None

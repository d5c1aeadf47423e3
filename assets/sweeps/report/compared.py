"""The best trial beside the next one, and beside trial 0, which is the recipe as it is written.

Two trials are compared at the last step that both have reported, since values at different steps say nothing about one
another. A difference that is no larger than the noise says nothing either.
"""

from dataclasses import dataclass

from slipway.assets.sweeps.schedulers.ties import band
from slipway.assets.sweeps.state import SweepState, Trial


@dataclass(frozen=True)
class TrialComparison:
    """The best trial beside another one, both at the same step. Lower values are better."""

    best: int
    other: int
    step: int
    """The last step that both have reported."""
    best_value: float
    other_value: float
    difference: float
    """How much lower the best trial's value is; below 0 where the other's is the lower one."""
    noise: float | None
    """A difference that says nothing (`ties.SIGMAS`). None where the trials have too few reports."""

    @property
    def certain(self) -> bool:
        """Whether the difference is above the noise, which is unknown at times: then any difference counts."""
        return self.difference > (self.noise or 0.0)


def compared(best: Trial, other: Trial, known_noise: float | None) -> TrialComparison | None:
    """Two trials at the last step that both have reported with finite values; None where there is no such step.

    The noise is `known_noise`, or estimated from their reports (`slipway.assets.sweeps.schedulers.ties`).
    """
    common = [step for step, value in best.reports.items() if value is not None and other.reports.get(step) is not None]
    if not common:
        return None
    step = max(common)
    best_value, other_value = best.reports[step], other.reports[step]
    assert best_value is not None and other_value is not None
    noise = band(best.reports, other.reports, step, known_noise)
    return TrialComparison(best.number, other.number, step, best_value, other_value, other_value - best_value, noise)


def next_best(sweep: SweepState) -> Trial | None:
    """The trial that would be the best if the best one were not there; None without two that have a value."""
    best = sweep.best
    others = [trial for trial in sweep.trials.values() if trial.value is not None and trial is not best]
    if best is None or not others:
        return None
    return min(others, key=lambda trial: merit(sweep, trial))


def merit(sweep: SweepState, trial: Trial) -> tuple[bool, int, float, int]:
    """A sort key: the best trial first, most steps before lower values, and trials without a finite value last."""
    value = trial.value
    return value is None, -sweep.reached(trial), 0.0 if value is None else value, trial.number

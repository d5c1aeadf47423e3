"""Compares the best trial with the next one, and with trial 0, which is the recipe as it is written.

Two trials are compared at the last step that both have reported, because values at different steps are not comparable.
A difference within the noise is not significant.
"""

from dataclasses import dataclass

from slipway.assets.sweeps.schedulers.ties import band
from slipway.assets.sweeps.state import SweepState, Trial


@dataclass(frozen=True)
class TrialComparison:
    """The best trial and another one at the same step. Lower values are better."""

    best: int
    other: int
    step: int
    """The last step that both have reported."""
    best_value: float
    other_value: float
    difference: float
    """The other trial's value less the best trial's; below 0 if the other's is lower."""
    noise: float | None
    """The largest difference that is not significant (`ties.SIGMAS`). None if the trials have too few reports."""

    @property
    def certain(self) -> bool:
        """Whether the difference is above the noise. If the noise is unknown, any difference counts."""
        return self.difference > (self.noise or 0.0)


def compared(best: Trial, other: Trial, known_noise: float | None) -> TrialComparison | None:
    """Compare two trials at the last step that both have reported with finite values; None if there is none.

    The noise is `known_noise`, or estimated from their reports (`slipway.assets.sweeps.schedulers.ties`).
    """
    common = [step for step, value in best.reports.items() if value is not None and other.reports.get(step) is not None]
    if not common:
        return None
    step = max(common)
    best_value = best.reports[step]
    other_value = other.reports[step]
    assert best_value is not None and other_value is not None
    noise = band(best.reports, other.reports, step, known_noise)
    return TrialComparison(best.number, other.number, step, best_value, other_value, other_value - best_value, noise)


def next_best(sweep: SweepState) -> Trial | None:
    """The best trial apart from the best one; None if fewer than two trials have a value."""
    best = sweep.best
    others = [trial for trial in sweep.trials.values() if trial.value is not None and trial is not best]
    if best is None or not others:
        return None
    return min(others, key=lambda trial: merit(sweep, trial))


def merit(sweep: SweepState, trial: Trial) -> tuple[bool, int, float, int]:
    """A sort key for the best trial first: more steps before lower values, trials without a finite value last."""
    value = trial.value
    return value is None, -sweep.reached(trial), 0.0 if value is None else value, trial.number

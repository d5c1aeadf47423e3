"""The lineage of a trial: the commits that it continued, and so the schedule of parameters of its weights.

The last parameters of the winner of population-based training do not reproduce it: its result is this schedule.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.assets.sweeps.state import Parameters, SweepState, Trial


@dataclass(frozen=True)
class ScheduledParameters:
    """The parameters of one stretch of a training, from a step on."""

    first_step: int
    """The first stretch begins at 0, each later one at the step of the commit that it continued."""
    trial: int
    """The trial that trained this stretch."""
    parameters: Parameters


def reports(sweep: SweepState, trial: Trial) -> dict[int, float | None]:
    """The values of a trial by step, after those of the trials that it continues."""
    before: Mapping[int, float | None] = {}
    if trial.parent is not None:
        inherited = reports(sweep, sweep.trials[trial.parent])
        before = {step: value for step, value in inherited.items() if step <= trial.first_step}
    return {**before, **trial.reports}


def schedule(sweep: SweepState, trial: Trial) -> tuple[ScheduledParameters, ...]:
    """The parameters that led to a trial's weights, each with its first step.

    A single training that follows this schedule takes the same steps.
    """
    stretches = [ScheduledParameters(trial.first_step, trial.number, trial.parameters)]
    while trial.parent is not None:
        trial = sweep.trials[trial.parent]
        stretches.append(ScheduledParameters(trial.first_step, trial.number, trial.parameters))
    return tuple(reversed(stretches))

"""The lineage of a trial: whose commits it continued, and so which parameters its weights were trained with, and when.

The winner of population-based training is not reproduced by its last parameters: its result is this schedule.
"""

from dataclasses import dataclass

from assets.sweeps.state import Parameters, SweepState, Trial


@dataclass(frozen=True)
class ScheduledParameters:
    """The parameters of one stretch of a training, from a step on."""

    first_step: int
    """The first stretch begins at 0, each further one at the step of the commit that it continued."""
    trial: int
    """The trial that trained this stretch."""
    parameters: Parameters


def schedule(sweep: SweepState, trial: Trial) -> tuple[ScheduledParameters, ...]:
    """The parameters that led to a trial's weights, by the steps at which they began to hold.

    One training that begins with the first and changes to each next one at its step does the same steps.
    """
    stretches = [ScheduledParameters(trial.first_step, trial.number, trial.parameters)]
    while trial.parent is not None:
        trial = sweep.trials[trial.parent]
        stretches.append(ScheduledParameters(trial.first_step, trial.number, trial.parameters))
    return tuple(reversed(stretches))

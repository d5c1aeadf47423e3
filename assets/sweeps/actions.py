"""The actions that are due in a sweep. They follow from its state again and again, until the log says they are done.

Each may be repeated, since the controller may die after it acted and before it logged that: submit-or-adopt, commit and
leave, cancel. `until` is the step at which a trial pauses with a verified commit, or its full length, where it ends.
"""

from dataclasses import dataclass
from typing import Any

from slipway.assets.sweeps.state import SweepState, Trial


@dataclass(frozen=True)
class Start:
    """Submit the trial's job, or adopt it; log Started. A retry has the same trial and another attempt."""

    trial: int
    attempt: int
    parameters: dict[str, Any]
    until: int


@dataclass(frozen=True)
class Continue:
    """Let a trial that paused at `step` go on from its newest commit (a retry may have one further on) to `until`; log
    Started."""

    trial: int
    attempt: int
    step: int
    until: int


@dataclass(frozen=True)
class StartBranch:
    """Start a child of population-based training from the parent's commit of `step`, with its own parameters: its
    weights are byte-equal to the parent's there; log Started.

    The parent paused at `step`, so that commit is verified. It must be kept until this child has a commit of its own.
    """

    trial: int
    attempt: int
    parent: int
    step: int
    parameters: dict[str, Any]
    until: int


@dataclass(frozen=True)
class Pause:
    """A person paused the sweep: let the running trial commit where it is and leave; log Paused with that step.

    A trial that reaches its `until` first is paused or has ended there, as always."""

    trial: int


@dataclass(frozen=True)
class Stop:
    """Cancel the trial's job, or find that there is none; log Ended as stopped, with the reason."""

    trial: int
    reason: str


TrialAction = Start | Continue | StartBranch | Pause | Stop


def next_actions(sweep: SweepState) -> list[TrialAction]:
    """The actions that are due now, by the number of the trial; the same until the log says that they are done.

    Nothing is due for a running trial that goes on to its `until`: the controller watches it, and logs Reported, then
    Paused at `until` (Ended at full length), or Ended as failed.
    """
    return [action for trial in sweep.not_ended if (action := _of(trial, sweep))]


def _of(trial: Trial, sweep: SweepState) -> TrialAction | None:
    if sweep.closed:
        return Stop(trial.number, sweep.closed.reason or f"the sweep is closed: {sweep.closed.outcome}")
    if trial.told_to_stop:
        return Stop(trial.number, f"stopped by the scheduler ({sweep.plan.scheduler['kind']})")
    if trial.state == "running" and sweep.pause:
        return Pause(trial.number)
    if trial.state != "pending" or sweep.pause:
        return None
    if trial.paused_at is not None:
        return Continue(trial.number, trial.attempt, trial.paused_at, trial.until)
    if trial.parent is not None:
        parameters = dict(trial.parameters)
        return StartBranch(trial.number, trial.attempt, trial.parent, trial.first_step, parameters, trial.until)
    return Start(trial.number, trial.attempt, dict(trial.parameters), trial.until)

"""The actions that are due in a sweep. The state implies an action until the log says that it is done.

Every action is repeatable (submit or adopt, commit and leave, cancel), because the controller may die between an action
and its log entry. `until` is the step at which a trial pauses with a verified commit, or its full length, where it
ends.
"""

from dataclasses import dataclass
from typing import Any

from slipway.assets.sweeps.state import SweepState, Trial


@dataclass(frozen=True)
class Start:
    """Submit the trial's job, or adopt it; log Started. A retry has the same trial number and a new attempt."""

    trial: int
    attempt: int
    parameters: dict[str, Any]
    until: int


@dataclass(frozen=True)
class Continue:
    """Resume a trial that paused at `step`, from its newest commit (a retry may have a later one), to `until`; log
    Started."""

    trial: int
    attempt: int
    step: int
    until: int


@dataclass(frozen=True)
class StartBranch:
    """Start a child of population-based training from the parent's commit at `step`, with its own parameters; log
    Started. Its initial weights are byte-equal to the parent's.

    The parent paused at `step`, so the commit is verified. It must be kept until the child has a commit of its own.
    """

    trial: int
    attempt: int
    parent: int
    step: int
    parameters: dict[str, Any]
    until: int


@dataclass(frozen=True)
class Pause:
    """A person paused the sweep: let the running trial commit at its present step and leave; log Paused with it.

    A trial that reaches its `until` first pauses or ends there as usual."""

    trial: int


@dataclass(frozen=True)
class Stop:
    """Cancel the trial's job, if there is one; log Ended as stopped, with the reason."""

    trial: int
    reason: str


TrialAction = Start | Continue | StartBranch | Pause | Stop


def next_actions(sweep: SweepState) -> list[TrialAction]:
    """The actions that are due now, sorted by trial; the same actions until the log says that they are done.

    A running trial on its way to `until` needs no action: the controller watches it, and logs Reported, then Paused at
    `until` (Ended at full length), or Ended as failed.
    """
    actions = [_of(trial, sweep) for trial in sweep.not_ended]
    return [action for action in actions if action]


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

"""Training decision: the one step that is due for a training, from an observation of it. Pure.

It is level-triggered: only the observation counts, and not which caller asks or how often.
"""

import enum
from dataclasses import dataclass

from slipway.resources.launchers.protocol import JobState


class Action(enum.Enum):
    """A step of the state machine."""

    WAIT = "wait"
    CLAIM = "claim the next incarnation"
    STOP_OLDER = "stop the job of an earlier incarnation"
    SUBMIT = "submit the job"
    STOP = "stop the job"
    RECORD = "record how the incarnation ended"
    GIVE_UP = "want it no longer"
    DONE = "nothing is left to do"


@dataclass(frozen=True)
class TrainingObservation:
    """The desired and the actual state of a training at one time."""

    should_run: bool
    incarnation: int
    """The newest incarnation; 0 before the first."""
    outcome: str | None
    """The outcome of the newest incarnation; None while it has not ended."""
    exhausted: str
    """The exhausted budget of failures, or "". Also "" while a job is submitted, since no start is due then."""
    held_back: bool
    """Whether the next start waits for a pause after failures of machines, or for its team's quota."""
    job: JobState
    """The state of the newest incarnation's job."""
    submitted: bool
    """Whether that job is known to have been submitted."""
    missing_confirmed: bool
    older_live: bool
    """Whether a job of an earlier incarnation may still be running."""
    ready_nodes: int
    min_nodes: int


def decide(observation: TrainingObservation) -> Action:
    """The next action. Unknown is not dead: a missing job counts as ended only once that is confirmed."""
    if observation.incarnation == 0 or observation.outcome is not None:
        return _after_the_end(observation)
    if observation.older_live:
        return Action.STOP_OLDER
    if observation.job.live:
        if not observation.should_run:
            return Action.STOP
        # A live job without a record of its submission: the submitting process died in between. Adopt the job.
        return Action.WAIT if observation.submitted else Action.SUBMIT
    if observation.job.terminal:
        return Action.RECORD
    if not observation.submitted:
        return _before_the_start(observation)
    return Action.RECORD if observation.missing_confirmed else Action.WAIT


def _before_the_start(observation: TrainingObservation) -> Action:
    """The action if an incarnation is claimed and no job of the training runs."""
    if not observation.should_run:
        return Action.RECORD
    if observation.exhausted:
        return Action.GIVE_UP
    return Action.WAIT if observation.held_back else Action.SUBMIT


def _after_the_end(observation: TrainingObservation) -> Action:
    """The action if no incarnation runs: start the first or the next one, or nothing."""
    if observation.outcome == "succeeded" or not observation.should_run:
        return Action.DONE
    if observation.exhausted:
        return Action.GIVE_UP
    if observation.held_back or observation.ready_nodes < observation.min_nodes:
        return Action.WAIT
    return Action.CLAIM

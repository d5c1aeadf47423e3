"""Training decision: the one step that is due for a training, from what was observed of it. Pure.

It is level-triggered: only the observation of the moment counts, and not which caller asks or how often.
"""

import enum
from dataclasses import dataclass

from slipway.resources.launchers.protocol import JobState


class Action(enum.Enum):
    """A step."""

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
    """What is and what should be, at one moment."""

    wanted: bool
    incarnation: int
    """The newest one, 0 before the first."""
    outcome: str | None
    """How it ended, None while it has not."""
    exhausted: str
    """Which budget of failures ran out; empty while none did, or while a job is submitted, as no start is due then."""
    held_back: bool
    """Whether the next start waits: for a rest after failures of machines, or for its team's quota."""
    job: JobState
    """The newest incarnation's job."""
    submitted: bool
    """Whether that job is known to have been submitted."""
    missing_confirmed: bool
    older_live: bool
    """Whether a job of an earlier incarnation may still be running."""
    ready_nodes: int
    min_nodes: int


def decide(seen: TrainingObservation) -> Action:
    """The next action. Unknown is not dead: a job seen missing once is not given up until that is confirmed."""
    if seen.incarnation == 0 or seen.outcome is not None:
        return _after_the_end(seen)
    if seen.older_live:
        return Action.STOP_OLDER
    if seen.job.live:
        # The job exists but no record says that it was submitted: its submitter died half-way. Adopt it.
        return Action.STOP if not seen.wanted else Action.WAIT if seen.submitted else Action.SUBMIT
    if seen.job.terminal:
        return Action.RECORD
    if not seen.submitted:
        return _before_the_start(seen)
    return Action.RECORD if seen.missing_confirmed else Action.WAIT


def _before_the_start(seen: TrainingObservation) -> Action:
    """The action when an incarnation is claimed and no job of the training runs."""
    if not seen.wanted:
        return Action.RECORD
    if seen.exhausted:
        return Action.GIVE_UP
    return Action.WAIT if seen.held_back else Action.SUBMIT


def _after_the_end(seen: TrainingObservation) -> Action:
    """The action when no incarnation runs: start the first or the next one, or nothing."""
    if seen.outcome == "succeeded" or not seen.wanted:
        return Action.DONE
    if seen.exhausted:
        return Action.GIVE_UP
    return Action.CLAIM if seen.ready_nodes >= seen.min_nodes and not seen.held_back else Action.WAIT

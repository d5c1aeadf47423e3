"""Training decision: what is due for a training, from what was observed of it. Pure; the whole table of the control.

It is level-triggered: nothing but the moment's observation counts, whoever asks and however often.
"""

import enum
from dataclasses import dataclass

from resources.launcher.protocol import State


class Action(enum.Enum):
    WAIT = "wait"
    CLAIM = "claim the next incarnation"
    STOP_OLDER = "stop the job of an earlier incarnation"
    SUBMIT = "submit the job"
    STOP = "stop the job"
    RECORD = "record how the incarnation ended"
    GIVE_UP = "want it no longer"
    DONE = "nothing is left to do"


@dataclass(frozen=True)
class Observation:
    """What is and what should be, at one moment."""

    wanted: bool
    incarnation: int
    """The newest one, 0 before the first."""
    outcome: str | None
    """How it ended, None while it has not."""
    fruitless: int
    fruitless_limit: int
    job: State
    """The newest incarnation's job."""
    submitted: bool
    """Whether that job is known to have been submitted."""
    missing_confirmed: bool
    older_live: bool
    """Whether a job of an earlier incarnation may still be running."""
    ready_nodes: int
    min_nodes: int


def decide(seen: Observation) -> Action:
    """The next action. Unknown is not dead: a job that is merely missing is waited for until that is confirmed."""
    if seen.incarnation == 0 or seen.outcome is not None:
        return _after_the_end(seen)
    if seen.older_live:
        return Action.STOP_OLDER
    if seen.job.live:
        # A job that is there but not known to be submitted is one whose submitter died half-way: adopt it.
        return Action.STOP if not seen.wanted else Action.WAIT if seen.submitted else Action.SUBMIT
    if seen.job.terminal:
        return Action.RECORD
    if not seen.submitted:
        return _before_the_start(seen)
    return Action.RECORD if seen.missing_confirmed else Action.WAIT


def _before_the_start(seen: Observation) -> Action:
    """An incarnation is claimed and no job of the training runs."""
    if not seen.wanted:
        return Action.RECORD
    return Action.GIVE_UP if seen.fruitless >= seen.fruitless_limit else Action.SUBMIT


def _after_the_end(seen: Observation) -> Action:
    """No incarnation runs: start the first or the next one, or leave it at that."""
    if seen.outcome == "succeeded" or not seen.wanted:
        return Action.DONE
    if seen.fruitless >= seen.fruitless_limit:
        return Action.GIVE_UP
    return Action.CLAIM if seen.ready_nodes >= seen.min_nodes else Action.WAIT

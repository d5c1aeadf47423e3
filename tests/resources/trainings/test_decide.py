"""The decision table: what is due, for everything that can be observed."""

import itertools
from collections.abc import Iterable, Iterator

import pytest

from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.decision import Action, TrainingObservation, decide

pytestmark = pytest.mark.pure


def observation(**changes: object) -> TrainingObservation:
    """A wanted training whose first incarnation was submitted and runs, on a fleet with a node to spare."""
    usual: dict[str, object] = {
        "should_run": True,
        "incarnation": 1,
        "outcome": None,
        "exhausted": "",
        "held_back": False,
        "job": JobState.RUNNING,
        "submitted": True,
        "missing_confirmed": False,
        "older_live": False,
        "ready_nodes": 2,
        "min_nodes": 1,
    }
    return TrainingObservation(**(usual | changes))  # type: ignore[arg-type]


SPENT = "3 failures of class program in a row without a new checkpoint, expected 2 at most"
NEW = {"incarnation": 0, "job": JobState.MISSING, "submitted": False}
CLAIMED = {"job": JobState.MISSING, "submitted": False}
ENDED = {"job": JobState.MISSING, "outcome": "failed"}

TABLE: dict[str, tuple[dict[str, object], Action]] = {
    "a wanted training is claimed": (NEW, Action.CLAIM),
    "with too few nodes it waits for them": ({**NEW, "ready_nodes": 0}, Action.WAIT),
    "a training that is not wanted is left alone": ({**NEW, "should_run": False}, Action.DONE),
    "a claimed incarnation is submitted": (CLAIMED, Action.SUBMIT),
    "it is not while the job of an earlier one lives": ({**CLAIMED, "older_live": True}, Action.STOP_OLDER),
    "nor after too many failures without a checkpoint before it": ({**CLAIMED, "exhausted": SPENT}, Action.GIVE_UP),
    "a claim that is not wanted any more ends unsubmitted": ({**CLAIMED, "should_run": False}, Action.RECORD),
    "even then an older job is stopped first": (
        {**CLAIMED, "should_run": False, "older_live": True},
        Action.STOP_OLDER,
    ),
    "a running job is left running": ({}, Action.WAIT),
    "a pending one may take its time": ({"job": JobState.PENDING}, Action.WAIT),
    "fewer nodes than it wants do not harm a running job": ({"ready_nodes": 0}, Action.WAIT),
    "a job whose submitter died half-way is adopted": ({"job": JobState.PENDING, "submitted": False}, Action.SUBMIT),
    "one that it started is adopted too": ({"submitted": False}, Action.SUBMIT),
    "a job that is not wanted any more is stopped": ({"should_run": False}, Action.STOP),
    "also before it runs": ({"should_run": False, "job": JobState.PENDING, "submitted": False}, Action.STOP),
    "a job merely missing is waited for": ({"job": JobState.MISSING}, Action.WAIT),
    "also when it is not wanted": ({"job": JobState.MISSING, "should_run": False}, Action.WAIT),
    "one confirmed missing is recorded": ({"job": JobState.MISSING, "missing_confirmed": True}, Action.RECORD),
    "a failed job is recorded": ({"job": JobState.FAILED}, Action.RECORD),
    "a stopped job is recorded": ({"job": JobState.STOPPED, "should_run": False}, Action.RECORD),
    "a job that ended without a record of its own gets one": ({"job": JobState.SUCCEEDED}, Action.RECORD),
    "after a failure the next incarnation is claimed": (ENDED, Action.CLAIM),
    "after a failure without enough nodes it waits": ({**ENDED, "ready_nodes": 1, "min_nodes": 2}, Action.WAIT),
    "after a job stopped from outside the next is claimed": ({**ENDED, "outcome": "stopped"}, Action.CLAIM),
    "a failed training that is not wanted stays as it is": ({**ENDED, "should_run": False}, Action.DONE),
    "a training is given up after too many failures without a checkpoint": (
        {**ENDED, "exhausted": SPENT},
        Action.GIVE_UP,
    ),
    "no nodes do not keep it from being given up": ({**ENDED, "exhausted": SPENT, "ready_nodes": 0}, Action.GIVE_UP),
    "while a training rests after faults of machines it is not claimed": ({**ENDED, "held_back": True}, Action.WAIT),
    "nor submitted": ({**CLAIMED, "held_back": True}, Action.WAIT),
    "a training that succeeded is done": ({"job": JobState.MISSING, "outcome": "succeeded"}, Action.DONE),
    "and stays done however often it is wanted": ({"outcome": "succeeded", "exhausted": SPENT}, Action.DONE),
}


@pytest.mark.parametrize("sentence", TABLE)
def test_the_table(sentence: str):
    changes, action = TABLE[sentence]
    assert decide(observation(**changes)) is action


def everything() -> Iterator[TrainingObservation]:
    """Every observation that a decision could depend on."""
    fields: dict[str, Iterable[object]] = {
        "should_run": (True, False),
        "incarnation": (0, 1, 2),
        "outcome": (None, "succeeded", "failed", "stopped"),
        "exhausted": ("", SPENT),
        "held_back": (False, True),
        "job": JobState,
        "submitted": (True, False),
        "missing_confirmed": (True, False),
        "older_live": (True, False),
        "ready_nodes": (0, 1),
    }
    for values in itertools.product(*fields.values()):
        yield observation(**dict(zip(fields, values, strict=True)))


def test_nothing_is_submitted_while_an_older_job_may_live():
    assert not [situation for situation in everything() if situation.older_live and decide(situation) is Action.SUBMIT]


def test_a_job_that_was_submitted_is_never_submitted_again():
    assert not [situation for situation in everything() if situation.submitted and decide(situation) is Action.SUBMIT]


def test_nothing_is_claimed_before_the_newest_incarnation_has_ended():
    claimed = [situation for situation in everything() if decide(situation) is Action.CLAIM]
    assert claimed and all(situation.incarnation == 0 or situation.outcome is not None for situation in claimed)


def test_no_end_is_recorded_for_a_job_that_may_live():
    recorded = [situation for situation in everything() if decide(situation) is Action.RECORD]
    assert recorded and not [situation for situation in recorded if situation.job.live or situation.older_live]
    vanished = [situation for situation in recorded if situation.job is JobState.MISSING and situation.submitted]
    assert vanished and all(situation.missing_confirmed for situation in vanished)


def test_only_a_wanted_training_is_started():
    starts = (Action.CLAIM, Action.SUBMIT)
    assert not [situation for situation in everything() if not situation.should_run and decide(situation) in starts]

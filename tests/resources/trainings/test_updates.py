"""Updating: which fields of a training can be set while it exists, when each takes effect, and what is on record."""

from pathlib import Path
from typing import Any

import pytest

from slipway.resources.trainings import updates
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.record import changes, fence
from slipway.trainer.record.changes import AppliedChange
from slipway.trainer.record.fence import Exit, Token
from slipway.trainer.record.heartbeat import Heartbeat
from tests.resources.trainings.lab import numbers

RUN_POLICY = RunPolicy(1, 1, 1, 60.0, 3)


@pytest.fixture
def store(tmp_path: Path) -> TrainingStore:
    """A training that is claimed."""
    store = Trainings(tmp_path).propose(Specification("tiny", numbers(100), "0" * 64, "1" * 64), RUN_POLICY)
    store.want("run", "ada", "a test")
    assert store.claim(1, ("node-0",), "a test", "ada")
    return store


def update(store: TrainingStore, **changed_fields: Any) -> list[updates.FieldUpdate]:
    fields = {field.replace("__", "."): value for field, value in changed_fields.items()}
    return updates.update(store, fields, store.run_policy(), "ada", "the loss rises")


def test_a_field_that_ranks_can_take_over_is_recorded_under_the_next_number(store: TrainingStore):
    [first] = update(store, optimizer__learning_rate=0.5)
    assert (first.old, first.new, first.takes_effect) == (0.01, 0.5, "in place, between two steps")
    [second] = update(store, optimizer__learning_rate=0.25)
    assert second.old == 0.5  # what was asked for before holds already
    assert [
        (known_update.number, known_update.fields, known_update.by, known_update.why)
        for known_update in updates.known(store.folder)
    ] == [
        (1, {"optimizer.learning_rate": 0.5}, "ada", "the loss rises"),
        (2, {"optimizer.learning_rate": 0.25}, "ada", "the loss rises"),
    ]


def test_another_number_of_steps_is_taken_over_in_place_and_says_what_becomes_of_the_learning_rate(
    store: TrainingStore,
):
    Heartbeat(store.folder, Token(1), 0).beat("training", 50)
    [field_update] = update(store, run__steps=200)
    assert (field_update.old, field_update.new, field_update.takes_effect) == (100, 200, "in place, between two steps")
    assert field_update.means == (
        "the learning rate is 0.008669 at step 51, and not 0.005429; it comes to 0.001 at step 200, and not at step 100"
    )
    assert updates.steps_now(store.read()) == 200


@pytest.mark.parametrize("steps", [50, 7])
def test_fewer_steps_than_are_done_are_refused(store: TrainingStore, steps: object):
    Heartbeat(store.folder, Token(1), 0).beat("training", 50)
    with pytest.raises(ValueError, match=f"^run.steps: found {steps!r}, expected more than 50, the step that is done"):
        update(store, run__steps=steps)
    assert updates.known(store.folder) == []


def test_a_change_is_reported_as_waiting_held_or_refused(store: TrainingStore):
    for rate in (0.5, 0.25, 0.125):
        update(store, optimizer__learning_rate=rate)
    changes.record(store.folder, AppliedChange(1, 41, Token(1), {"optimizer.learning_rate": (0.01, 0.5)}))
    changes.record(store.folder, AppliedChange(2, 42, Token(1), refused="a test"))
    states = [known_update.state for known_update in updates.known(store.folder)]
    assert states == ["since step 42", "rejected: a test", "it waits for the next step"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("run.seed", 5, "run.seed: found 5, expected no change: the place in the order of the samples"),
        ("run.precision", "bf16", "run.precision: found 'bf16', expected no change: it determines what is computed"),
        ("validation.every", 5, "validation.every: found 5, expected 0: it has no shards"),
        ("optimizer.warmup_steps", -1, "optimizer.warmup_steps: expected 0 or more"),
    ],
)
def test_what_would_be_another_training_is_refused_and_nothing_is_written(
    store: TrainingStore, field: str, value: object, message: str
):
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        update(store, checkpoint__every=5, **{field.replace(".", "__"): value})
    assert updates.known(store.folder) == []


def test_a_training_that_has_succeeded_is_branched_instead(store: TrainingStore):
    fence.record_exit(store.folder, Exit(1, "succeeded", "all steps done", 100, "trainer", 0.0))
    with pytest.raises(
        ValueError, match=f"it has succeeded; to continue it with changes, use slipway branch {store.id}@STEP"
    ):
        update(store, optimizer__learning_rate=0.5)


def test_a_record_of_a_superseded_process_does_not_hold(store: TrainingStore):
    changes.record(store.folder, AppliedChange(1, 80, Token(1), {"optimizer.clip": (1.0, 2.0)}))
    assert fence.claim(store.folder, Token(2), nodes=(), cause="a test", by="test")
    changes.record(store.folder, AppliedChange(1, 60, Token(2), {"optimizer.clip": (1.0, 2.0)}))
    assert changes.applied(store.folder)[1].step == 60
    with pytest.raises(fence.Superseded):
        changes.record(store.folder, AppliedChange(2, 81, Token(1), {"optimizer.clip": (2.0, 3.0)}))

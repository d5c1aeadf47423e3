"""Hot updates: a running training takes over a change between two steps, and after a kill after the same step again."""

import json
import shutil
import time
from typing import Any

import pytest

from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.record import changes, fence
from slipway.trainer.step.hot_updates import LOOK_SECONDS
from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.test_replay import last_line, replay

RATE, LATER, STEPS = 0.01, 0.0025, 300
ENDLESS: dict[str, Any] = {
    "run": {"steps": STEPS},
    "checkpoint": {"every": 10 * STEPS},
    "validation": {"every": 0},
    "optimizer": {"schedule": "constant", "warmup_steps": 0, "learning_rate": RATE},
}
"""No checkpoint before the last step: a start that follows a kill repeats all steps."""


def change(training: Training, **fields: Any) -> None:
    changes.propose(training.store, {name.replace("__", "."): value for name, value in fields.items()}, "ada", "a test")


def killed_after_the_change(training: Training, ranks: int) -> int:
    """Change the rate while it runs, and kill it some steps after it took that over; the step of the change."""
    process = training.start(ranks, freeze=",".join(map(str, range(20, STEPS, 20))))
    training.until_frozen()
    change(training, optimizer__learning_rate=LATER)
    while not (change_in_effect := changes.applied(training.store)):
        training.thaw()
        training.until_frozen()
    training.thaw()
    training.until_frozen()
    process.kill()
    process.communicate()
    training.until_gone()
    return change_in_effect[1].step


def steps_of(training: Training, incarnation: int, field: str) -> dict[int, float]:
    return {event["step"]: event[field] for event in training.events("step") if event["incarnation"] == incarnation}


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_start_that_follows_a_kill_takes_over_the_change_after_the_same_step(training: Training, ranks: int):
    training.configure(**ENDLESS)
    step = killed_after_the_change(training, ranks)
    training.completed(ranks)
    for incarnation in (1, 2):
        rates = steps_of(training, incarnation, "learning_rate")
        assert {rate for number, rate in rates.items() if number <= step} == {RATE}
        assert {rate for number, rate in rates.items() if number > step} == {LATER}
    before, after = (steps_of(training, incarnation, "loss") for incarnation in (1, 2))
    assert len(before) > step + 1 and len(after) == STEPS
    assert {number: after[number] for number in before} == before
    changes = [(event["step"], event["changed"], event["asked_by"]) for event in training.events("changed")]
    assert changes == 2 * [(step, {"optimizer.learning_rate": [RATE, LATER]}, "ada")]


@pytest.mark.slow
def test_changes_that_were_asked_for_beforehand_hold_exactly_from_their_steps_on(training: Training):
    """A schedule of parameters is one training; a person's change meanwhile does not wait for it."""
    for step, rate in ((8, 0.005), (12, LATER)):
        changes.propose(training.store, {"optimizer.learning_rate": rate}, "a schedule", "a test", after=step)
    change(training, optimizer__clip=0.5)
    training.configure(**{**ENDLESS, "run": {"steps": 20}})
    training.completed()
    rates = steps_of(training, 1, "learning_rate")
    assert {step: rate for step, rate in rates.items() if rates.get(step - 1) != rate} == {1: RATE, 9: 0.005, 13: LATER}
    assert {number: change_record.step for number, change_record in changes.applied(training.store).items()} == {
        1: 8,
        2: 12,
        3: 0,
    }


@pytest.mark.nightly
@pytest.mark.parametrize(("before", "after"), [(20, 30), (30, 20)])
def test_a_running_training_takes_over_another_number_of_steps(training: Training, before: int, after: int):
    """Here before its first step: it is as if it had had that number from the start."""
    training.configure(run={"steps": after, "seed": 3})
    expected_training = training.completed()
    expected = expected_training.losses(), steps_of(expected_training, 1, "learning_rate")
    shutil.rmtree(training.store)
    shutil.rmtree(training.durable / "checkpoints")
    training.configure(run={"steps": before, "seed": 3})
    change(training, run__steps=after)
    training.completed()
    assert (training.losses(), steps_of(training, 1, "learning_rate")) == expected
    ended = fence.read_exit(training.store, 1)
    assert ended is not None and ended.step == after
    [event] = training.events("changed")
    assert event["means"].startswith(
        "the learning rate is 0.005 at step 1, as it would have been; it comes to 0.001 at"
    )


@pytest.mark.nightly
def test_a_training_that_is_about_to_end_goes_on_when_it_gets_more_steps_and_a_new_start_knows_them(
    training: Training,
):
    training.configure(run={"steps": 20, "seed": 3})
    process = training.start(freeze="18,25")
    training.until_frozen()
    change(training, run__steps=30)
    time.sleep(2 * LOOK_SECONDS)
    training.thaw()
    until(lambda: 25 in steps_of(training, 1, "loss"), "a step that there was not")
    process.kill()
    process.communicate()
    training.until_gone()
    training.completed()
    assert [step for step, _ in training.losses()] == list(range(1, 31))
    assert {event["changed"]["run.steps"][1] for event in training.events("changed")} == {30}


@pytest.mark.nightly
def test_a_change_between_two_starts_is_in_the_lineage_and_replays_repeat_it(training: Training):
    training.interrupted(8)
    change(training, optimizer__learning_rate=LATER, optimizer__weight_decay=0.0, validation__every=5)
    training.completed()
    assert changes.held_at(training.store, 5)[0].changed["optimizer.learning_rate"] == (RATE, LATER)
    assert [event["step"] for event in training.events("validated")] == [10, 15, 20]
    commit = next(commit for commit in training.commits() if commit.step == 10)
    progress = contents.open_unverified(training.durable / commit.folder, commit.manifest).progress()
    assert (
        progress.config["optimizer"]["learning_rate"] == LATER and progress.config["optimizer"]["weight_decay"] == 0.0
    )
    [[number, step, fields]] = progress.lineage["changes"]
    assert (number, step, fields["validation.every"]) == (1, 5, 5)
    for first in (5, 10):
        ended = replay(training, "--from", first, "--steps", 20 - first)
        assert ended.code == 0 and last_line(ended).startswith("replay: bitwise equal: "), ended.out + ended.err


@pytest.mark.nightly
def test_a_replay_with_another_value_tells_from_which_step_it_differs(finished: Training):
    changed_fields = json.dumps({"optimizer.learning_rate": LATER})
    ended = replay(finished, "--from", 10, "--steps", 5, "--set", changed_fields, "--json")
    report = json.loads(last_line(ended))
    assert (ended.code, report["code"], report["step"]) == (1, 1, 12), (
        ended.err
    )  # the loss of step 11 is from before it
    ended = replay(finished, "--from", 10, "--steps", 5, "--set", json.dumps({"run.seed": 7}))
    assert ended.code == 2 and "replay: " in ended.err and "found 7, expected 3, as it was" in ended.err


@pytest.mark.nightly
def test_a_change_that_cannot_be_taken_over_is_refused_with_the_reason_and_the_next_one_is_not(training: Training):
    change(training, run__seed=5)
    change(training, optimizer__warmup_steps=-1)
    change(training, checkpoint__every=4)
    training.completed()
    first, second = training.events("change_refused")
    assert first["reason"].startswith("run.seed: found 5, expected one of checkpoint.every, ")
    assert second["reason"] == "optimizer.warmup_steps: expected 0 or more"
    assert [commit.step for commit in training.commits()] == [4, 8, 12, 16, 20]
    assert set(changes.applied(training.store)) == {1, 2, 3} and fence.commits(training.store)

"""Batches that are left out: once is once, on record, and the same for every later start and replay."""

import re

import pytest

from slipway.trainer.elastic import skipped_batches
from slipway.trainer.record import causes, fence, incidents
from tests.conftest import until
from tests.trainer.conftest import STEPS, Ended, Training, read_json, wait

ONE_LINE = "trainer: the gradient norm of step 7 is nan; the batch is left out"


def spoilt(training: Training, faults: str) -> Ended:
    return wait(training.spawn("tests.trainer.spoiled", faults, str(training.config)))


@pytest.fixture(scope="module")
def without_seven(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """A training whose step 7 has gradients that are not finite. Read only."""
    training = Training(tmp_path_factory.mktemp("without-seven"), mark)
    ended = spoilt(training, "nan@7")
    assert ended.code == 0 and ONE_LINE in ended.out, ended
    return training


@pytest.mark.slow
def test_a_batch_whose_gradients_are_not_finite_is_left_out_once_and_reported(without_seven: Training) -> None:
    assert [event["step"] for event in without_seven.events("step")] == [
        step for step in range(1, STEPS + 1) if step != 7
    ]
    assert skipped_batches.read(without_seven.store) == {7: 7}
    [id] = incidents.names(without_seven.store)
    incident = incidents.read(without_seven.store, id)
    assert (incident.kind, incident.step, incident.survived, incident.action) == (
        causes.DIVERGED,
        6,
        True,
        "left the batch out",
    )
    assert read_json(without_seven.checkpoint_file("progress.json", 5))["skipped"] == []
    assert read_json(without_seven.checkpoint_file("progress.json", 10))["skipped"] == [7]


@pytest.mark.slow
def test_a_restart_leaves_out_the_same_batch_and_ends_bit_for_bit_as_the_training_that_was_not_killed(
    training: Training, without_seven: Training
) -> None:
    process = training.spawn("tests.trainer.spoiled", "nan-once@7,freeze@8", str(training.config))
    training.until_frozen()
    until(lambda: [commit.step for commit in training.commits()] == [5], "the checkpoint")
    process.kill()
    wait(process)
    # This time no gradient of step 7 would be spoilt.
    training.completed()
    [restored] = training.events("restored")
    assert restored["step"] == 5
    assert training.tensors() == without_seven.tensors()


@pytest.mark.slow
def test_a_replay_leaves_out_the_same_batch(without_seven: Training) -> None:
    ended = wait(
        without_seven.spawn("slipway.trainer.replay", str(without_seven.config), "--from", "5", "--steps", "5"),
    )
    assert (ended.code, "bitwise equal" in ended.out) == (0, True), ended


@pytest.mark.slow
def test_batches_that_are_never_finite_end_the_training_with_a_reason_and_do_not_loop(training: Training) -> None:
    training.configure(recovery={"skips": 2})
    first = spoilt(training, "nan-from@6")
    reason = "the gradient norm of step 8 is nan; batches were left out at steps 6, 7 before, expected 2 times in"
    assert first.code == 1 and f"trainer: {reason}" in first.err
    ended = fence.read_exit(training.store, 1)
    assert ended is not None and (ended.outcome, ended.kind) == ("failed", causes.DIVERGED)
    again = spoilt(training, "nan-from@6")
    assert again.code == 1 and re.search("of step 8 is nan; batches were left out at steps 6, 7", again.err)
    assert skipped_batches.read(training.store) == {6: 6, 7: 7}


@pytest.mark.nightly
def test_where_a_batch_has_changed_more_than_gradients_the_next_start_leaves_out_all_since_the_checkpoint(
    training: Training,
) -> None:
    """PowerSGD keeps errors of gradients from step to step."""
    training.configure(communication={"compression": "powersgd"})
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "-m"]
    ended = wait(training.spawn(*agent, "tests.trainer.spoiled", "nan-once@8", str(training.config)))
    assert ended.code == 1
    assert "of step 8 is nan; the next start leaves out the batches since the newest checkpoint" in ended.err
    left_out = skipped_batches.read(training.store)
    assert min(left_out) in (1, 6), "the save of step 5 may not have been over"
    assert left_out == dict.fromkeys(range(min(left_out), 9), 8)
    training.completed(ranks=2)
    assert [event["step"] for event in training.events("step") if event["incarnation"] == 2] == list(
        range(9, STEPS + 1)
    )


@pytest.mark.slow
def test_a_spike_of_the_loss_is_reported_and_the_training_goes_on(training: Training) -> None:
    training.configure(run={"steps": 40}, checkpoint={"every": 40}, validation={"every": 0})
    assert spoilt(training, "spike@38").code == 0
    [id] = incidents.names(training.store)
    incident = incidents.read(training.store, id)
    assert (incident.kind, incident.step, incident.survived) == (causes.SPIKE, 37, True)
    assert re.match(r"the loss of step 38 is \d+\.\d{4}, that of the steps before \d\.\d{4}", incident.reason)
    assert skipped_batches.read(training.store) == {} and len(training.losses()) == 40

"""Endings: as asked, superseded, diverged, out of disk, or never begun; each is told apart from the others."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import processes
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.disks import mounted
from tests.trainer.conftest import STEPS, Training, line_with, wait


def claim(training: Training, incarnation: int) -> None:
    assert fence.claim(training.store, Token(incarnation), nodes=("node-1",), cause="a test", by="a test")


def one_line(err: str) -> str:
    """The one line a process has said on stderr."""
    (line,) = err.splitlines()
    return line


@pytest.mark.slow
def test_sigterm_leaves_a_checkpoint_of_the_step_reached_and_exit_code_0(
    training: Training, finished: Training
) -> None:
    process = training.start(freeze="6")
    training.until_frozen()
    process.send_signal(signal.SIGTERM)
    training.thaw()
    ended = wait(process)
    assert ended.code == 0, ended.err
    assert "trainer: stopped" in ended.out
    reached = training.losses()[-1][0]
    assert 6 < reached < STEPS
    assert training.commits()[-1].step == reached
    (end,) = training.events("ended")
    assert (end["outcome"], end["step"]) == ("stopped", reached)
    assert fence.read_exit(training.store, 1) is None
    training.completed()
    assert training.tensors() == finished.tensors()


@pytest.mark.slow
def test_sigterm_to_one_rank_stops_all_at_the_same_step(training: Training) -> None:
    process = training.start(ranks=2, freeze="3")
    training.until_frozen()
    os.kill(processes.children(process.pid)[-1], signal.SIGTERM)
    training.thaw()
    ended = wait(process)
    assert ended.code == 0, ended.err
    assert training.commits()[-1].step == training.losses()[-1][0] < STEPS


def test_a_superseded_trainer_ends_with_exit_code_3_and_its_late_commit_does_not_count(training: Training) -> None:
    training.configure(run={"steps": 100_000})
    process = training.start()
    line_with(process, "step 6/")
    claim(training, 2)
    ended = wait(process)
    assert ended.code == 3
    assert one_line(ended.err) in (
        "trainer: 000001.0000 was superseded by 000002.0000",
        f"trainer: 000001.0000 is being superseded: claim 2 of {training.store.name} is being made",
    )
    newest_claim = fence.newest_claim(training.store)
    assert newest_claim is not None
    assert [commit.name for commit in training.commits()] == list(newest_claim.sealed)
    superseded = fence.read_exit(training.store, 1)
    assert superseded is not None and superseded.outcome == "failed"


@pytest.mark.slow
def test_a_launched_trainer_commits_under_its_incarnation(training: Training) -> None:
    training.configure(run={"steps": 1})
    for incarnation in (1, 2):
        claim(training, incarnation)
    assert training.run(SLIPWAY_INCARNATION="2", SLIPWAY_NODE="node-1").code == 0
    assert [commit.token for commit in training.commits()] == [Token(2)]
    assert (training.folder / "nvme-node-1" / "shards").is_dir()


@pytest.mark.slow
def test_a_training_that_diverges_says_at_which_step_and_is_recorded_as_failed(training: Training) -> None:
    training.configure(optimizer={"learning_rate": 1e30, "warmup_steps": 0}, checkpoint={"every": 1})
    ended = training.run()
    assert ended.code == 1
    line = one_line(ended.err)
    (end,) = training.events("ended")
    done = fence.read_exit(training.store, 1)
    assert done is not None
    assert re.match("trainer: the (loss|gradient norm) of step 5 is (nan|inf); ", line)
    assert line.endswith("batches were left out at steps 2, 3, 4 before, expected 3 times in 1000 steps at most")
    assert f"trainer: {end['reason']}" == f"trainer: {done.reason}" == line
    assert end["outcome"] == done.outcome == "failed"
    assert [event["step"] for event in training.events("step")] == [1]


def test_a_validation_loss_that_is_not_a_number_is_a_divergence_too(training: Training) -> None:
    training.configure(optimizer={"learning_rate": 1e39, "warmup_steps": 0}, validation={"every": 1})
    ended = training.run()
    assert ended.code == 1
    assert "the validation loss after step 1 is " in one_line(ended.err)
    assert training.commits() == []


def break_json(training: Training) -> None:
    training.config.write_text('{\n"format": oops\n}')


def break_field(training: Training) -> None:
    training.configure(model={"layers": 0})


def break_snapshot(training: Training) -> None:
    next(training.durable.glob("snapshots/*.json")).unlink()


def test_a_snapshot_that_no_tier_holds_is_a_state_of_the_tiers_and_ends_with_exit_code_1(training: Training) -> None:
    break_snapshot(training)
    ended = training.run()
    assert ended.code == 1
    assert one_line(ended.err).startswith("trainer: ") and "there is no such snapshot" in ended.err


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (break_json, "config.json:2: not JSON: "),
        (break_field, "config.json: field model.layers: expected a number above 0"),
    ],
)
def test_a_configuration_that_cannot_be_trained_ends_with_exit_code_2_and_one_line(
    training: Training, spoil, expected: str
) -> None:
    spoil(training)
    ended = training.run()
    assert ended.code == 2
    assert one_line(ended.err).startswith("trainer: ")
    assert expected in ended.err
    assert training.commits() == []


def test_without_a_configuration_the_usage_is_printed(training: Training) -> None:
    ended = wait(training.spawn("slipway.trainer"))
    assert (ended.code, one_line(ended.err)) == (2, "usage: python -m slipway.trainer CONFIG.json")


@pytest.fixture
def full_disk(training: Training) -> Iterator[Path]:
    """The training's checkpoints lie on a disk too small for one."""
    with mounted(training.durable / "checkpoints", "size=64k") as disk:
        yield disk


@pytest.mark.slow
def test_a_full_disk_is_an_event_and_the_training_continues(training: Training, full_disk: Path) -> None:
    ended = training.run()
    assert len(training.events("step")) == STEPS
    failed = training.events("commit_failed")
    assert [event["step"] for event in failed] == [5, 10, 15, 20]
    assert all("No space left" in event["reason"] for event in failed)
    assert list((full_disk / "tiny").iterdir()) == []
    assert training.commits() == []
    # Without its last checkpoint a training is not done, and may be started again.
    assert ended.code == 1
    assert one_line(ended.err) == "trainer: the checkpoint of the last step (20) could not be committed"
    assert fence.read_exit(training.store, 1) is None


@pytest.mark.slow
def test_a_store_that_is_full_for_a_while_costs_events_and_not_the_training(
    training: Training, finished: Training
) -> None:
    """A disk that holds the ledger and the heartbeats fills up in mid-run, and is cleared again."""
    with mounted(training.store, "size=256k"):
        process = training.start(freeze="2,9")
        training.until_frozen()
        filler = training.store / "filler"
        with pytest.raises(OSError, match="No space left"), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        training.thaw()
        line_with(process, "step 9/")
        training.until_frozen()
        filler.unlink()
        training.thaw()
        ended = wait(process)
        assert ended.code == 0, ended.err
        assert training.tensors() == finished.tensors()

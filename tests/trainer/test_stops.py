"""Graceful stops: heard in the middle of a step, with a checkpoint of the step before it; and what does not fit."""

import os
import signal
import subprocess

import pytest

from slipway.trainer.base import processes
from slipway.trainer.checkpoint.saving import schedule
from tests.trainer.conftest import Training, wait


def stopped_in_a_step(training: Training, step: int, ranks: int = 1, stopped_rank: int = 0) -> "subprocess.Popen[str]":
    """Ask rank `stopped_rank` to stop while rank 0 is in the middle of this step."""
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
    module = ["tests.trainer.mid_step", str(step), "2", str(training.config)]
    process = training.spawn(*(agent if ranks > 1 else []), *module)
    training.until_frozen()
    os.kill(processes.children(process.pid)[stopped_rank] if ranks > 1 else process.pid, signal.SIGTERM)
    training.thaw()
    return process


@pytest.mark.slow
def test_a_stop_in_the_middle_of_a_long_step_saves_the_step_before_it(training: Training, finished: Training) -> None:
    ended = wait(stopped_in_a_step(training, 8))
    assert ended.code == 0, ended.err
    assert [event["step"] for event in training.events("step_left")] == [8]
    assert training.losses()[-1][0] == training.commits()[-1].step == 7
    (end,) = training.events("ended")
    assert (end["outcome"], end["step"]) == ("stopped", 7)
    training.completed()
    assert training.tensors() == finished.tensors()


@pytest.mark.slow
def test_a_stop_right_after_a_checkpoint_saves_nothing_again(training: Training) -> None:
    ended = wait(stopped_in_a_step(training, 6))
    assert ended.code == 0, ended.err
    assert [commit.step for commit in training.commits()] == [5]
    assert training.events("commit_failed") == []


@pytest.mark.nightly
def test_a_stop_in_the_first_step_leaves_nothing_and_the_next_start_begins_anew(training: Training) -> None:
    ended = wait(stopped_in_a_step(training, 1))
    assert ended.code == 0, ended.err
    assert training.commits() == []
    assert training.completed().commits()[-1].step == 20


@pytest.mark.slow
@pytest.mark.parametrize("stopped_rank", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_one_rank_that_is_asked_takes_all_out_of_the_step(training: Training, stopped_rank: int) -> None:
    """Without an exchange of their own for it: whoever waits for the other's gradients is told in the store."""
    process = stopped_in_a_step(training, 4, ranks=2, stopped_rank=stopped_rank)
    ended = wait(process)
    assert ended.code == 0, ended.err
    (commit,) = training.commits()
    assert commit.step == training.losses()[-1][0]
    if stopped_rank == 0:
        assert commit.step == 3 and [event["step"] for event in training.events("step_left")] == [4]


def test_a_save_that_is_longer_than_the_grace_is_said_beforehand_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(schedule.GRACE_VARIABLE, "20")
    events: list[dict[str, object]] = []
    warning = schedule.StopGrace(lambda event, **fields: events.append({"event": event, **fields}))
    warning.saved(10, 19.0, "durable")
    warning.saved(20, 300.0, "nvme")
    assert events == []
    for step, seconds in ((30, 34.0), (40, 36.0), (50, 60.0)):
        warning.saved(step, seconds, "durable")
    assert [event["step"] for event in events] == [30, 50]
    assert "the grace of 20 s is shorter than the last save took, 34 s: a stop now falls back to step 30" in str(
        events[0]
    )
    assert capfd.readouterr().err.count("trainer: the grace of 20 s") == 2


def test_steps_that_cannot_be_left_count_as_a_part_of_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(schedule.GRACE_VARIABLE, "20")
    messages: list[str] = []
    warning = schedule.StopGrace(lambda _, **fields: messages.append(f"{fields['seconds']:.0f} s: {fields['reason']}"))
    warning.saved(10, 12.0, "durable", before=7.0)
    assert messages == []
    warning.saved(20, 12.0, "durable", before=30.0)
    assert messages[0].startswith(
        "42 s: the grace of 20 s is shorter than a stop takes, 30 s for steps that cannot be left"
    )


def test_without_a_grace_that_is_known_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(schedule.GRACE_VARIABLE, raising=False)
    schedule.StopGrace(lambda event, **_: pytest.fail(event)).saved(10, 1e6, "durable")

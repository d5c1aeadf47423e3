"""Exactness: killed again and again, in steps and in the middle of saves, a training ends bit for bit as if never."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import processes
from tests.conftest import until
from tests.trainer.conftest import Training, line_with, wait

KILLS, EVERY, STEPS = 10, 4, 160
SETTINGS: dict[str, Any] = {"run": {"steps": STEPS}, "checkpoint": {"every": EVERY}, "validation": {"every": 20}}


def writer_of(trainer: int) -> int:
    """The pid of a trainer's writer process."""

    def runs_writer(pid: int) -> bool:
        try:
            return b"slipway.trainer.checkpoint.saving.writer" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return False

    def writer_pids() -> list[int]:
        return [pid for pid in processes.children(trainer) if runs_writer(pid)]

    until(writer_pids, "the writer process")
    return writer_pids()[0]


def reached(training: Training) -> int:
    """The step of the newest commit."""
    return max((commit.step for commit in training.commits()), default=0)


def killed_in_mid_save(training: Training, file: str) -> None:
    """Run it until its next checkpoint is half written, and then end it by SIGKILL.

    The writer is stopped before it begins, and goes on to a file that is a pipe which nobody reads.
    """
    step, token = reached(training) + EVERY, f"{len(training.events('started')) + 1:06d}.0000"
    process = training.start()
    writer = writer_of(process.pid)
    os.kill(writer, signal.SIGSTOP)
    line_with(process, f"step {step + 1}/")
    half = training.durable / "checkpoints" / "tiny" / f".{step:09d}.{token}.partial"
    half.mkdir(parents=True)
    os.mkfifo(half / file)
    os.kill(writer, signal.SIGCONT)
    until(lambda: list(half.glob("model-*.safetensors")), "half of a checkpoint")
    end(process)
    assert half.exists() and reached(training) == step - EVERY


def killed_after_a_commit(training: Training, delay: float) -> None:
    """Run it until it has committed once more and `delay` seconds have passed, and end it by SIGKILL."""
    before, process = reached(training), training.start()
    until(lambda: reached(training) > before, "the next commit")
    time.sleep(delay)
    end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    wait(process)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_training_that_is_killed_ten_times_is_bitwise_equal_to_one_that_is_not(
    training: Training, tmp_path_factory: pytest.TempPathFactory, mark: str
) -> None:
    undisturbed = Training(tmp_path_factory.mktemp("whole"), mark, **SETTINGS).completed()
    training.configure(**SETTINGS)
    chance = random.Random(11)
    for number in range(KILLS):
        if number % 3 == 0:
            training.interrupted(reached(training) + chance.randrange(1, 7))
        elif number % 3 == 1:
            killed_after_a_commit(training, delay=chance.uniform(0, 0.03))
        else:
            killed_in_mid_save(training, chance.choice(["model-00000.safetensors", "optimizer-00000.safetensors"]))
    training.completed()
    assert len(training.events("started")) == KILLS + 1
    assert len(training.events("restored")) >= KILLS - 1
    assert training.losses() == undisturbed.losses()
    assert training.tensors(STEPS) == undisturbed.tensors(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_world_size_after_a_restart_keeps_the_sample_order(
    training: Training, tmp_path_factory: pytest.TempPathFactory, mark: str
) -> None:
    """Each step's samples are in its loss: the losses agree to 1e-4, where other samples would move them by 1e-1."""
    undisturbed = Training(tmp_path_factory.mktemp("whole"), mark).completed()
    training.interrupted(6, ranks=2).interrupted(12, ranks=1).completed(ranks=3)
    assert [event["world"] for event in training.events("started")] == [2, 1, 3]
    steps, losses = zip(*training.losses(), strict=True)
    wanted_steps, expected = zip(*undisturbed.losses(), strict=True)
    assert steps == wanted_steps
    assert losses == pytest.approx(expected, abs=1e-4)

"""The report of a step: one line in the ledger with all figures, one on the console; now and then what bounds it."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from slipway.trainer.base import processes
from slipway.trainer.config import sections
from slipway.trainer.config.operation import Observation, Placement
from slipway.trainer.config.resolved import Config
from slipway.trainer.metrics.measures import FIRST_WINDOW, Work
from slipway.trainer.metrics.report import StepReport, console_line
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.recorder import RankRecorder
from tests.conftest import until
from tests.trainer.conftest import STEPS, Training, line_with, wait

PARTS = ("data", "forward", "backward", "optimizer", "communication")
USAGE = ("cpu_cores", "host_memory", "host_memory_free", "host_memory_free_share")
DONE = {"loss": 2.5, "learning_rate": 3e-4, "samples_per_second": 1234.56}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, mark: str) -> tuple[Training, str]:
    """Two ranks that say every five steps what bounds them; with their console. Read only."""
    training = Training(tmp_path_factory.mktemp("watched"), mark, observation={"window_steps": 5})
    ended = wait(training.start(ranks=2))
    assert ended.code == 0, ended.err
    return training, ended.out


@pytest.mark.slow
def test_a_step_s_event_has_the_time_of_each_part(observed: tuple[Training, str]):
    for event in observed[0].events("step"):
        spent = [event[f"{part}_seconds"] for part in PARTS]
        assert min(spent) > 0
        assert sum(spent) <= event["seconds"]


@pytest.mark.slow
def test_a_step_s_event_has_the_usage_of_the_machine(observed: tuple[Training, str]):
    for event in observed[0].events("step"):
        assert min(event[name] for name in USAGE) > 0


@pytest.mark.slow
def test_each_rank_tells_the_figures_of_its_own(observed: tuple[Training, str]):
    events = observed[0].events("rank_figures")
    assert {event["rank"] for event in events} == {0, 1}
    for rank in (0, 1):
        assert sum(event["figures"]["steps"] for event in events if event["rank"] == rank) == STEPS
    assert all(event["figures"]["forward_seconds"] > 0 and event["figures"]["host_memory"] > 0 for event in events)


@pytest.mark.slow
def test_a_slow_rank_shows_as_communication_of_the_others(training: Training, mark: str):
    """Rank 1 is stopped until the training has been silent for longer than its steps take."""
    training.configure(run={"steps": 100_000}, checkpoint={"every": 100_000}, validation={"every": 0})
    process = training.start(ranks=2)
    line_with(process, "step 3/")
    # The rank, and not the process that writes its checkpoints.
    lagging = min(processes.carrying({"SLIPWAY_TEST": mark, "RANK": "1"}))
    os.kill(lagging, signal.SIGSTOP)
    until(lambda: time.time() - training.events("step")[-1]["t"] > 3, "rank 0 to wait")
    os.kill(lagging, signal.SIGCONT)
    last = training.events("step")[-1]["step"]
    until(lambda: training.events("step")[-1]["step"] > last + 2, "the next steps")
    process.terminate()
    wait(process)
    longest = max(training.events("step")[1:], key=lambda event: event["seconds"])
    assert longest["communication_seconds"] > longest["seconds"] / 2


@pytest.mark.slow
def test_checkpoints_and_validations_count_for_the_step_after_them(observed: tuple[Training, str]):
    """They are outside of a step's own duration."""
    steps = observed[0].events("step")
    assert [event["step"] for event in steps if "checkpoint_seconds" in event] == [6, 11, 16]
    assert [event["step"] for event in steps if "validation_seconds" in event] == [11]


@pytest.mark.slow
def test_each_window_of_steps_has_a_verdict_on_what_bounds_it(observed: tuple[Training, str]):
    """The first step warms up and belongs to no window."""
    bounds = observed[0].events("bound")
    assert [(event["step"], event["steps"]) for event in bounds] == [(6, 5), (11, 5), (16, 5)]
    for event in bounds:
        assert event["bound"] in ("compute", "data", "communication", "checkpoint", "cpu", "memory")
        assert event["recommendation"].endswith(".")
        assert 0 < sum(event[f"{part}_share"] for part in PARTS) <= 1


def test_the_first_window_of_a_start_is_short_so_that_whoever_watches_it_need_not_wait(tmp_path: Path):
    folder = str(tmp_path)
    config = Config(
        training="tiny",
        snapshot="0" * 64,
        model=DecoderShape(layers=1, width=16, heads=2, kv_heads=2, hidden=16),
        batch=sections.Batch(sequences=4, length=16, micro=4),
        optimizer=sections.OptimizerConfig(learning_rate=1e-3),
        run=sections.Run(steps=1000),
        checkpoint=sections.Checkpoint(every=1000),
        placement=Placement(store=folder, durable=folder, nvme=folder),
        observation=Observation(window_steps=30),
    )
    alone = World(0, 1, 0, torch.device("cpu"))
    with RankRecorder(tmp_path, Token(1), 0) as recorder:
        report = StepReport(config, alone, Work(4, 64, 1000, None), Timeline(alone.device), recorder)
        for step in range(100, 180):
            report.step(step, 2.5, 0.1, 1.0, 1e-3, 0.1)
    windows = [(event["step"], event["steps"]) for event in ledger.read(tmp_path) if event["event"] == "bound"]
    assert windows == [(100 + FIRST_WINDOW, FIRST_WINDOW), (140, 30), (170, 30)]


@pytest.mark.slow
def test_the_console_has_one_line_a_step(observed: tuple[Training, str]):
    lines = [line for line in observed[1].splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == [f"{step}/{STEPS}" for step in range(1, STEPS + 1)]


def test_a_line_of_text_has_tokens_and_mfu_where_the_peak_is_known():
    done = {**DONE, "tokens_per_second": 1_234_567.0, "mfu": 0.412}
    assert console_line(7, 20, done) == "step 7/20 loss 2.5000 lr 3.00e-04 1,234,567 tokens/s mfu 41.2%"


def test_a_line_of_pictures_has_samples():
    assert console_line(7, 20, DONE) == "step 7/20 loss 2.5000 lr 3.00e-04 1,234.6 samples/s"

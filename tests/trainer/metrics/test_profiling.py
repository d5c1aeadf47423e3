"""Profiles on demand: of the recipe's steps, after a signal, under Nsight Systems; one that fails ends nothing."""

import gzip
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.trainer.base import atomic
from slipway.trainer.config.operation import Observation
from slipway.trainer.metrics.profiling import Profiler
from slipway.trainer.metrics.timeline import Timeline
from tests.conftest import until
from tests.disks import mounted
from tests.trainer.conftest import Training, line_with, wait


class Steps:
    """A rank that multiplies matrices, with its profiler."""

    def __init__(self, folder: Path, on_recipe: bool = True, **observation: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.timeline = Timeline(torch.device("cpu"))
        settings = Observation(profile_steps=2, **observation)
        self.profiler = Profiler(settings, self.timeline, folder, "r0", on_recipe, self._record, environment={})
        self.done = 0

    def run(self, count: int) -> None:
        for _ in range(count):
            self.profiler.step_begins(self.done + 1)
            with self.timeline.part("forward"):
                torch.ones(8, 8) @ torch.ones(8, 8)
            self.done += 1

    def ended(self) -> list[dict[str, Any]]:
        """The events, once every profile is written."""
        self.profiler.end(self.done)
        return self.events

    def _record(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})


def ranges(path: str) -> list[str]:
    """The names of what a trace shows."""
    trace = json.loads(gzip.decompress(Path(path).read_bytes()))
    return [event.get("name", "") for event in trace["traceEvents"]]


@pytest.fixture(autouse=True)
def own_signal() -> Iterator[None]:
    """What SIGUSR2 does outside of these tests."""
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


def test_the_recipe_s_steps_are_profiled(tmp_path: Path):
    steps = Steps(tmp_path / "profiles", profile_from=3)
    steps.run(8)
    (event,) = steps.ended()
    assert (event["event"], event["first"], event["last"]) == ("profiled", 3, 4)
    assert event["path"] == str(tmp_path / "profiles" / "000000003-000000004.r0.json.gz")
    assert ranges(event["path"]).count("forward") == 2
    assert "aten::mm" in ranges(event["path"])


def test_a_rank_other_than_0_does_not_profile_the_recipe_s_steps(tmp_path: Path):
    steps = Steps(tmp_path, on_recipe=False, profile_from=3)
    steps.run(8)
    assert steps.ended() == [] and list(tmp_path.iterdir()) == []


def test_every_signal_is_answered_with_a_profile(tmp_path: Path):
    steps = Steps(tmp_path, on_recipe=False)
    steps.run(2)
    os.kill(os.getpid(), signal.SIGUSR2)
    steps.run(1)
    os.kill(os.getpid(), signal.SIGUSR2)
    steps.run(5)
    assert [(event["first"], event["last"]) for event in steps.ended()] == [(3, 4), (5, 6)]


def test_a_profile_that_the_end_cuts_short_is_written(tmp_path: Path):
    steps = Steps(tmp_path, profile_from=3)
    steps.run(3)
    (event,) = steps.ended()
    assert (event["first"], event["last"]) == (3, 3)
    assert ranges(event["path"]).count("forward") == 1


def test_a_profile_that_cannot_be_written_is_an_event(tmp_path: Path):
    (tmp_path / "profiles").write_text("in the way")
    steps = Steps(tmp_path / "profiles", profile_from=2)
    steps.run(6)
    (event,) = steps.ended()
    assert event["event"] == "profile_failed" and "File exists" in event["reason"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 KiB."""
    with mounted(tmp_path / "disk", "size=8k") as disk:
        yield disk


def test_a_full_disk_is_an_event_and_leaves_nothing(small_disk: Path):
    (small_disk / "filler").write_bytes(bytes(8 << 10))
    steps = Steps(small_disk, profile_from=2)
    steps.run(6)
    (event,) = steps.ended()
    assert event["event"] == "profile_failed", event
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_steps_go_on_while_the_folder_of_the_profiles_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    answering = threading.Event()
    move = atomic.move
    monkeypatch.setattr(atomic, "move", lambda source, path: answering.wait(60) and move(source, path))
    steps = Steps(tmp_path, profile_from=2)
    steps.run(8)
    assert steps.events == []
    answering.set()
    (event,) = steps.ended()
    assert event["event"] == "profiled" and event["blocked_seconds"] > 0


@pytest.mark.slow
def test_a_training_that_receives_the_signal_continues_and_has_a_profile(training: Training):
    training.configure(observation={"profile_steps": 1}, run={"steps": 5000}, checkpoint={"every": 5000})
    process = training.start()
    line_with(process, "step 2/")
    process.send_signal(signal.SIGUSR2)
    until(lambda: training.events("profiled"), "the profile")
    process.terminate()
    assert wait(process).code == 0
    (event,) = training.events("profiled")
    assert event["rank"] == 0 and Path(event["path"]).parent == training.store / "profiles"
    assert {"data", "forward", "backward", "optimizer"} <= set(ranges(event["path"]))

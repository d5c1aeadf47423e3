"""The timeline: parts add up, communication is what is exposed of it, and the device is never waited for."""

import time

import pytest
import torch

from slipway.trainer.figures.timeline import Timeline

CPU = torch.device("cpu")
SLEEP = 0.02


@pytest.fixture
def timeline() -> Timeline:
    return Timeline(CPU)


def spend(timeline: Timeline, name: str) -> None:
    with timeline.part(name):
        time.sleep(SLEEP)


def test_a_part_that_comes_several_times_adds_up(timeline: Timeline):
    begun = time.perf_counter()
    for name in ("forward", "backward", "forward", "backward"):
        spend(timeline, name)
    seconds = timeline.read()
    assert set(seconds) == {"forward", "backward"}
    assert min(seconds.values()) >= 2 * SLEEP
    assert sum(seconds.values()) <= time.perf_counter() - begun


def test_a_part_is_read_only_once(timeline: Timeline):
    spend(timeline, "data")
    assert timeline.read() and not timeline.read()


def test_the_time_after_the_last_bucket_of_gradients_is_communication(timeline: Timeline):
    with timeline.part("backward"):
        time.sleep(SLEEP)
        timeline.gradients_ready()
        time.sleep(SLEEP)
        timeline.gradients_ready()
        time.sleep(SLEEP)
    spend(timeline, "optimiser")
    seconds = timeline.read()
    assert seconds["backward"] >= 2 * SLEEP
    assert seconds["communication"] >= SLEEP
    assert set(seconds) == {"backward", "communication", "optimiser"}


def test_a_part_that_fails_is_not_counted(timeline: Timeline):
    with pytest.raises(RuntimeError), timeline.part("forward"):
        raise RuntimeError("out of memory")
    assert timeline.read() == {}


def test_parts_are_ranges_of_a_profile(timeline: Timeline):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        timeline.annotation = torch.profiler.record_function
        spend(timeline, "forward")
    assert "forward" in {event.key for event in profile.key_averages()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_a_part_that_still_runs_counts_for_the_next_reading():
    device = torch.device("cuda", 0)
    timeline, matrix = Timeline(device), torch.randn(4096, 4096, device=device)
    with timeline.part("forward"):
        for _ in range(200):
            matrix @ matrix
    under_way = timeline.read()
    torch.cuda.synchronize()
    assert under_way == {} and timeline.read()["forward"] > 0

"""The timeline: parts add up, communication is what is exposed of it, and the device is never waited for."""

import time
from typing import Any

import pytest
import torch

from slipway.trainer.metrics.timeline import StepTracer, Timeline

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
    spend(timeline, "optimizer")
    seconds = timeline.read()
    assert seconds["backward"] >= 2 * SLEEP
    assert seconds["communication"] >= SLEEP
    assert set(seconds) == {"backward", "communication", "optimizer"}


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


def traced(apart: int, steps: int) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """What was recorded of so many steps, and the figures of each."""
    events: list[dict[str, Any]] = []
    figures, timeline = [], Timeline(torch.device("cpu"))
    tracer = StepTracer(timeline, apart, lambda event, **fields: events.append({"event": event, **fields}))
    for step in range(1, steps + 1):
        tracer.step_begins(step)
        for name in ("data", "forward", "forward"):
            with timeline.part(name):
                pass
        figures.append(timeline.read())
        with timeline.part("validation"):
            pass
    tracer.close()
    return events, figures


def test_one_step_in_so_many_is_reported_with_its_parts_in_their_order():
    events, _ = traced(apart=2, steps=5)
    assert [(event["event"], event["step"]) for event in events] == [("step", 2), ("step", 4)]
    for event in events:
        assert [name for name, _, _ in event["parts"]] == ["data", "forward", "forward", "validation"]
        begins = [begun for _, begun, _ in event["parts"]]
        assert begins == sorted(begins) and begins[0] >= 0
        last, spent = event["parts"][-1][1:]
        assert last + spent <= event["seconds"] + 0.001


def test_the_last_step_is_reported_when_the_tracer_is_closed():
    assert [event["step"] for event in traced(apart=1, steps=2)[0]] == [1, 2]


def test_without_traces_nothing_is_reported():
    assert traced(apart=0, steps=3)[0] == []


def test_tracing_leaves_the_figures_of_a_step_as_they_are():
    assert [set(figures) for figures in traced(apart=1, steps=3)[1]] == [
        set(figures) for figures in traced(apart=0, steps=3)[1]
    ]

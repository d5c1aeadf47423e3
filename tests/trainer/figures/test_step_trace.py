"""Step traces: of the steps that are due, each part with its begin; of the others nothing."""

from typing import Any

import torch

from slipway.trainer.figures.step_trace import StepTracer
from slipway.trainer.figures.timeline import Timeline


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
    assert [(each["event"], each["step"]) for each in events] == [("step", 2), ("step", 4)]
    for each in events:
        assert [name for name, _, _ in each["parts"]] == ["data", "forward", "forward", "validation"]
        begins = [begun for _, begun, _ in each["parts"]]
        assert begins == sorted(begins) and begins[0] >= 0
        last, spent = each["parts"][-1][1:]
        assert last + spent <= each["seconds"] + 0.001


def test_the_last_step_is_reported_when_the_tracer_is_closed():
    assert [each["step"] for each in traced(apart=1, steps=2)[0]] == [1, 2]


def test_without_traces_nothing_is_reported():
    assert traced(apart=0, steps=3)[0] == []


def test_tracing_leaves_the_figures_of_a_step_as_they_are():
    assert [set(each) for each in traced(apart=1, steps=3)[1]] == [set(each) for each in traced(apart=0, steps=3)[1]]

"""What traces cost a step: the thread that trains records the parts of one step in a hundred, beside one that does not.

Both kinds of step are taken in turn in one process, and are counted in the seconds that this thread computes, which
other processes do not change. A step here has the parts of a real one and no work in them. The aim is 0.1 % of a step.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.parts.lines import print_line
from slipway.trainer.metrics.timeline import StepTracer, Timeline
from slipway.trainer.record import spans
from slipway.trainer.record.claims import Token
from slipway.trainer.record.recorder import RankRecorder

PARTS = ("data", *("forward", "backward") * 8, "communication", "optimizer", "communication")
STEP_SECONDS = 0.01
"""A short step of a training; the share of a longer one is smaller."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing", description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each kind")
    count = parser.parse_args().steps
    os.environ[spans.ENDPOINTS[0]] = "http://127.0.0.1:4318"  # nothing is sent: ranks only record
    with tempfile.TemporaryDirectory() as folder, RankRecorder(Path(folder), Token(1), 0) as recorder:
        seconds = dict.fromkeys((0, spans.DEFAULT_STEPS), 0.0)
        tracers = {apart: _tracer(apart, recorder) for apart in seconds}
        for first in range(0, count, spans.DEFAULT_STEPS):
            for apart, (timeline, tracer) in tracers.items():
                begun = time.thread_time()
                for step in range(first, first + spans.DEFAULT_STEPS):
                    _step(timeline, tracer, step)
                seconds[apart] += time.thread_time() - begun
    added = (seconds[spans.DEFAULT_STEPS] - seconds[0]) / count
    print_line({"metric": "tracing_seconds_per_step", "value": added, "unit": "s"})
    print_line({"metric": "tracing_share_of_a_10_ms_step", "value": added / STEP_SECONDS, "unit": "1"})


def _tracer(apart: int, recorder: RankRecorder) -> tuple[Timeline, StepTracer]:
    timeline = Timeline(torch.device("cpu"))
    return timeline, StepTracer(timeline, apart, recorder.record_span)


def _step(timeline: Timeline, tracer: StepTracer, step: int) -> None:
    tracer.step_begins(step)
    for name in PARTS:
        with timeline.part(name):
            pass
    timeline.read()


if __name__ == "__main__":
    main()

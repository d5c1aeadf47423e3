"""What it costs to watch a training: steps with all figures, parts and profiling switched on, beside steps without.

One trainer in one process takes both kinds of step in turn, so that the machine's moods meet both. The aim is that
watching costs less than a hundredth of a step.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import steps
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Layout, Observation, Recovery
from slipway.trainer.config.sections import Batch
from slipway.trainer.elastic.batch_judge import BatchJudge
from slipway.trainer.elastic.stragglers import StepPace
from slipway.trainer.loop import Trainer
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.phases import TRAINING
from slipway.trainer.record.recorder import RankRecorder

WARMUP = 5


class NoTimeline(Timeline):
    """Times nothing."""

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        yield


class NoReport:
    """Says nothing."""

    own_seconds = 0.0

    def step(self, *_: Any) -> dict[str, float]:
        return {}


class NoProfiler:
    """Never records."""

    def step_begins(self, step: int) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observation", description=__doc__)
    parser.add_argument("--pairs", type=int, default=50, help="steps of each kind")
    pairs = parser.parse_args().pairs
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        settings = _settings(Path(folder), on_gpu, pairs)
        trainer = _trainer(settings, device)
        observed, alone, profiled = _in_turn(trainer, device, pairs)
        watching = _watching(trainer)
        detecting = _detecting(trainer)
    described = f"a step, {settings.run.precision}, {device.type}"
    _print(f"{described}, with all figures", observed, alone, 1.01)
    _print(f"{described}, while PyTorch's profiler records it", profiled, alone, 2.0)
    _print(f"{described}, its figures alone", watching, alone, 0.01)
    _print(f"{described}, detection", detecting, alone, 0.005)


def _settings(folder: Path, on_gpu: bool, pairs: int) -> resolved.Config:
    """Short steps, as what watching costs does not grow with them; the last ones are profiled."""
    model = DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
    batch = Batch(sequences=1, length=32, micro=1)
    settings = steps.settings(folder, model, batch, Layout(), "bf16" if on_gpu else "fp32")
    return replace(settings, observation=Observation(profile_from=WARMUP + 2 * pairs + 1, profile_steps=pairs))


def _trainer(settings: resolved.Config, device: torch.device) -> Trainer:
    store, token = Path(settings.placement.store), fence.Token(1)
    fence.claim(store, token, nodes=("local",), cause="benchmark", by="benchmark")
    trainer = Trainer(settings, World(0, 1, 0, device), token, RankRecorder(store, token, 0))
    trainer.restore()
    return trainer


def _in_turn(trainer: Trainer, device: torch.device, pairs: int) -> tuple[float, float, float]:
    """Median seconds of steps that are watched, that are not, and that are profiled."""
    watching = (trainer.timeline, trainer.report, trainer.profiler)
    blind: Any = (NoTimeline(device), NoReport(), NoProfiler())
    for _ in range(WARMUP):
        _seconds(trainer, watching, device)
    both = [(_seconds(trainer, watching, device), _seconds(trainer, blind, device)) for _ in range(pairs)]
    observed, alone = (statistics.median(times) for times in zip(*both, strict=True))
    profiled = [_seconds(trainer, watching, device) for _ in range(pairs // 5)]
    trainer.profiler.end(trainer.step)
    return observed, alone, statistics.median(profiled)


def _seconds(trainer: Trainer, watching: Any, device: torch.device) -> float:
    """One step under these watchers; of the processor's time on a CPU."""
    trainer.timeline, trainer.report, trainer.profiler = watching
    trainer.engine.timeline = trainer.timeline
    on_gpu = device.type == "cuda"
    # On a CPU its time is what a step costs, whatever else the machine does meanwhile.
    clock = time.perf_counter if on_gpu else time.process_time
    begun = clock()
    trainer.train_step(False)
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - begun


def _watching(trainer: Trainer) -> float:
    """Median seconds of all that is done to watch one step, with no step between: free of the noise of the steps."""
    times = []
    for _ in range(1000):
        begun = time.perf_counter()
        for name in ("data", "forward", "backward", "optimizer", "communication", "optimizer"):
            with trainer.timeline.part(name):
                pass
        trainer.report.step(trainer.step, loss=3.0, accuracy=0.5, norm=1.0, rate=1e-3, seconds=0.1)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _detecting(trainer: Trainer) -> float:
    """Median seconds of all that finds faults in one step: its sections, the judgement of its batch, and the
    figures of its heartbeat. A thread of rank 0 looks at all ranks every ten seconds, beside the steps."""
    judge, pace = BatchJudge(Recovery(), trainer.store, trainer.token, True, lambda *_, **__: None), StepPace()
    times = []
    for step in range(1000):
        begun = time.perf_counter()
        trainer.recorder.enter(TRAINING, trainer.step, lambda: trainer.timeline.entered)
        for name in ("profiling", "checkpoint"):
            with trainer.timeline.doing(name):
                pass
        judge.leaves_out(step)
        judge.accepts(step, 3.0 + step % 7 / 100, 1.0, in_place=trainer.engine.can_leave_out)
        trainer.recorder.keep_pace(*pace.add(0.1, 0.09))
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _print(metric: str, value: float, alone: float, factor: float) -> None:
    line = {"benchmark": "observation", "metric": metric, "unit": "ms", "better": "lower"}
    peers = {"the same step unwatched": alone * 1e3}
    print(json.dumps({**line, "ours": value * 1e3, "peers": peers, "aim": alone * factor * 1e3}), flush=True)


if __name__ == "__main__":
    main()

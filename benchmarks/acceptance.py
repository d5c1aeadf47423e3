"""Acceptance: the published models at the users' aims, scaled to the hardware that is here; scaling; and an accuracy.

``python -m benchmarks.acceptance [--cases ...] [--steps N] [--images FOLDER --side PIXELS]``: every figure comes from
the ledger of a real training under torchrun, a rank for each GPU, or for each core where there is no GPU. There the
models are small ones of the same kind. What cannot run here is said on stderr.

The users gave their aims on V100 and A100. An aim is a share of the peak arithmetic of those, and here it is the same
share of the peak of this hardware: by its data sheet, or on a CPU as a large product of matrices measures it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import pictures
from benchmarks.peers import steps as stepping
from slipway.trainer.base import atomic
from slipway.trainer.config import operation, resolved, sections, shapes
from slipway.trainer.config.hardware import peak_flops
from slipway.trainer.models import build
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.resnet import ResNetShape
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.record import ledger

V100, A100 = 125e12, 312e12
"""Dense FLOP/s in 16 bits, by NVIDIA's data sheets."""
WARM_UP = 3
"""Steps that do not count."""
EFFICIENCY = {2: 0.90, 4: 0.85, 8: 0.75}
COMMUNICATION, GPU_USE, ACCURACY, EPOCHS, WORKERS = 0.15, 0.85, 0.90, 10, 4
CLASSES, SMALL_MICRO = 1000, 4
THREADS = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Case:
    """A model, as it is published and small, with the aim that the users gave for it."""

    name: str
    published: shapes.Shape
    small: shapes.Shape
    length: int
    """Tokens of a sample; of a picture, the pixels on a side."""
    small_length: int
    micro: int
    per_second: float | None = None
    """Samples a second on `cards` cards of `peak` FLOP/s; None where no aim was given."""
    cards: int = 4
    peak: float = V100

    @property
    def shape_for_hardware(self) -> tuple[shapes.Shape, int]:
        """The shape and the length that this machine trains."""
        return (self.published, self.length) if on_gpu() else (self.small, self.small_length)

    @property
    def reads_pictures(self) -> bool:
        return type(self.published).reads == "pictures"


CASES = {
    case.name: case
    for case in (
        Case(
            "ResNet-50",
            ResNetShape(),
            ResNetShape(blocks=(1, 1, 1), width=16, stem="small"),
            length=224,
            small_length=32,
            micro=128,
            per_second=5000,
        ),
        Case(
            "ViT-B/16",
            VisionShape(layers=12, width=768, heads=12, hidden=3072, patch=16),
            VisionShape(layers=4, width=128, heads=4, hidden=512, patch=4),
            length=224,
            small_length=32,
            micro=128,
        ),
        Case(
            "BERT-Large",
            EncoderShape(layers=24, width=1024, heads=16, hidden=4096),
            EncoderShape(layers=2, width=128, heads=4, hidden=512),
            length=128,
            small_length=128,
            micro=64,
            per_second=200,
        ),
        Case(
            "GPT-2",
            DecoderShape(layers=12, width=768, heads=12, kv_heads=12, hidden=2048),
            DecoderShape(layers=4, width=128, heads=4, kv_heads=4, hidden=384),
            length=1024,
            small_length=128,
            micro=16,
            per_second=100,
            peak=A100,
        ),
    )
}


@dataclass(frozen=True)
class Reached:
    """By one training, from the steps that count."""

    samples_per_second: float
    communication: float
    """Share of the steps' time."""
    gpu_use: float | None
    """Share of the time with a kernel running; None on a CPU."""
    accuracy: float | None
    """Of the last validation, None without one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acceptance")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, "scaling", "accuracy"])
    parser.add_argument("--steps", type=int, default=20, help="steps of each training that count")
    parser.add_argument("--images", type=Path, help="Parquet files with images and labels; by default, digits")
    parser.add_argument("--side", type=int, default=pictures.DIGITS_SIDE, help="pixels on a side of those images")
    arguments = parser.parse_args()
    chosen = arguments.cases or [*CASES, "scaling", "accuracy"]
    for name in chosen:
        if name in CASES:
            throughput(CASES[name], arguments.steps)
    if "scaling" in chosen:
        scaling(CASES["GPT-2"], arguments.steps)
    if "accuracy" in chosen:
        accuracy(arguments.images, arguments.side)


def throughput(case: Case, steps: int) -> None:
    """Samples a second on all devices, what of the time goes to communication, and the use of the GPU."""
    ranks = max(count for count in (1, 2, 4, 8) if count <= devices())
    reached = _trained(case, ranks, steps)
    where = f"{case.name}{'' if on_gpu() else ', small'}, {ranks} {hardware()}"
    _print(f"samples/s, {where}", "samples/s", "higher", reached.samples_per_second, {}, _aim(case, ranks))
    if ranks > 1:
        _print(f"communication, {where}", "share of a step", "lower", reached.communication, {}, COMMUNICATION)
    if reached.gpu_use is not None:
        _print(f"GPU use, {where}", "share of the time", "higher", reached.gpu_use, {}, GPU_USE)


def scaling(case: Case, steps: int) -> None:
    """Samples a second of several ranks, as a share of as many times one rank's; each rank has the same work."""
    alone = 0.0
    for ranks in (1, *EFFICIENCY):
        if ranks > devices():
            _left_out(f"scaling to {ranks} ranks", f"found {devices()} {hardware()}")
            continue
        rate = _trained(case, ranks, steps).samples_per_second
        alone = alone or rate
        if ranks > 1:
            metric = f"scaling efficiency, {case.name}, {ranks} {hardware()}"
            _print(metric, "share of one rank's", "higher", rate / ranks / alone, {"ideal": 1.0}, EFFICIENCY[ranks])


def accuracy(images: Path | None, side: int) -> None:
    """A residual network after ten epochs on four workers, measured on the pictures that it has not seen."""
    ranks = min(WORKERS, devices()) if on_gpu() else WORKERS
    shape = ResNetShape(stem="small") if on_gpu() else ResNetShape(blocks=(1, 1, 1), width=16, stem="small")
    batch = sections.Batch(sequences=64, micro=64 // ranks)
    with tempfile.TemporaryDirectory() as folder:
        source = images or pictures.digits(Path(folder) / "digits")
        sha256, snapshot = pictures.snapshot(source, side, Path(folder) / "durable")
        steps = EPOCHS * snapshot.splits["train"].images // batch.sequences
        config = replace(
            stepping.training(Path(folder), sha256, shape, batch, operation.Layout(), "fp32"),
            optimizer=sections.OptimizerConfig(
                kind="sgd", learning_rate=0.05, warmup_steps=steps // 20, weight_decay=5e-4
            ),
            run=sections.Run(steps=steps),
            validation=sections.Validation(every=steps, sequences=snapshot.splits["validation"].images),
        )
        reached = _run(config, ranks)
    name = f"{'the given pictures' if images else 'handwritten digits'}, ResNet{'-50' if on_gpu() else ', small'}"
    _print(
        f"accuracy after {EPOCHS} epochs, {name}, {ranks} workers", "share", "higher", reached.accuracy, {}, ACCURACY
    )


def on_gpu() -> bool:
    return torch.cuda.is_available()


def devices() -> int:
    """GPUs, or the cores that this process may use."""
    return torch.cuda.device_count() if on_gpu() else len(os.sched_getaffinity(0))


def hardware() -> str:
    return torch.cuda.get_device_name(0) if on_gpu() else "cores"


def _trained(case: Case, ranks: int, steps: int) -> Reached:
    """A training of the case in which each rank has one micro-batch a step."""
    shape, length = case.shape_for_hardware
    micro = case.micro if on_gpu() else SMALL_MICRO
    batch = sections.Batch(sequences=micro * ranks, length=0 if case.reads_pictures else length, micro=micro)
    layout = operation.Layout(compile=on_gpu() and not case.reads_pictures)
    with tempfile.TemporaryDirectory() as folder:
        durable = Path(folder) / "durable"
        if case.reads_pictures:
            snapshot = pictures.random_snapshot(durable, length, CLASSES, count=4 * batch.sequences)
        else:
            snapshot = stepping.random_tokens(durable, batch)
        config = stepping.training(Path(folder), snapshot, shape, batch, layout, "bf16" if on_gpu() else "fp32")
        return _run(replace(config, run=replace(config.run, steps=WARM_UP + steps)), ranks)


def _run(config: resolved.Config, ranks: int) -> Reached:
    """Run a training to its end under torchrun; what its ledger says."""
    store = Path(config.placement.store)
    path = store.parent / "config.json"
    path.write_bytes(atomic.readable_json(resolved.dump(config)))
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
    command = [sys.executable, "-m", *agent, "slipway.trainer", str(path)]
    done = subprocess.run(command, env={**os.environ, **THREADS}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarks.acceptance: {config.model.kind} on {ranks} ranks failed:\n{done.stderr[-2000:]}")
    events = list(ledger.read(store))
    counted = [event for event in events if event["event"] == "step" and event["step"] > WARM_UP]
    seconds = statistics.median(event["seconds"] for event in counted)
    spent = sum(event["seconds"] for event in counted)
    uses = [event["gpu_use"] for event in counted if "gpu_use" in event]
    measured = [event["accuracy"] for event in events if event["event"] == "validated"]
    return Reached(
        samples_per_second=config.batch.sequences / seconds,
        communication=sum(event.get("communication_seconds", 0.0) for event in counted) / spent,
        gpu_use=statistics.mean(uses) if uses else None,
        accuracy=measured[-1] if measured else None,
    )


def _aim(case: Case, ranks: int) -> float | None:
    """The users' samples a second as this hardware would reach them at the same share of its peak."""
    if case.per_second is None:
        return None
    share = case.per_second * _flops(case, case.published, case.length) / (case.cards * case.peak)
    return share * _peak() * ranks / _flops(case, *case.shape_for_hardware)


def _flops(case: Case, shape: shapes.Shape, length: int) -> int:
    """Operations of a sample, forward and backward."""
    if case.reads_pictures:
        data = shapes.Data(picture=(length, length, 3), classes=CLASSES)
    else:
        data = shapes.Data(vocabulary=stepping.VOCABULARY, length=length)
    with torch.device("meta"):
        return build(shape, data).flops_per_sample


def _peak() -> float:
    """FLOP/s of a device: by its data sheet in bf16, or of one core as the best of ten products of matrices shows."""
    if on_gpu():
        known = peak_flops(torch.device("cuda", 0), "bf16")
        return known or _measured_peak(torch.device("cuda", 0), 8192, torch.bfloat16)
    torch.set_num_threads(1)
    return _measured_peak(torch.device("cpu"), 1024, torch.float32)


def _measured_peak(device: torch.device, side: int, dtype: torch.dtype) -> float:
    factor = torch.randn(side, side, device=device, dtype=dtype)
    return 2 * side**3 / min(_seconds(lambda: factor @ factor, device) for _ in range(10))


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def _left_out(what: str, why: str) -> None:
    print(f"benchmarks.acceptance: without {what}: {why}", file=sys.stderr)


def _print(metric: str, unit: str, better: str, value: Any, peers: dict[str, float], aim: float | None) -> None:
    line = {"benchmark": "acceptance", "metric": metric, "unit": unit, "better": better, "ours": value, "peers": peers}
    print(json.dumps({**line, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()

"""MFU and tokens/s of decoders of 1 B to 8 B parameters on one GPU: bf16 and fp8, compiled or not, beside a bare loop.

``python -m benchmarks.gpu [--rounds N] [--models 1B 3B 8B]``: on a machine without a GPU it says so and measures
nothing. MFU is PaLM's (arXiv:2204.02311), of the peak of bf16; for fp8, where it is not defined, FLOP/s are given. The
profiler counts how often the host waits for the GPU in a step.
"""

import argparse
import gc
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Literal

import torch

from benchmarks.peers import steps as stepping
from slipway.trainer.config.hardware import peak_flops
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Batch, Precision
from slipway.trainer.config.shapes import Data
from slipway.trainer.models import build
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.step.parallel.eight_bits import LEAST_CAPABILITY

MODELS = {
    "1B": (
        DecoderShape(layers=20, width=2048, heads=16, kv_heads=8, hidden=5632),
        Batch(sequences=16, length=2048, micro=8),
    ),
    "3B": (
        DecoderShape(layers=28, width=3072, heads=24, kv_heads=8, hidden=8192),
        Batch(sequences=16, length=2048, micro=4),
    ),
    # Llama 3.1 8B with the vocabulary of the other two, and recomputed: weights, gradients and moments have 120 GiB.
    "8B": (
        DecoderShape(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336),
        Batch(sequences=4, length=2048, micro=1),
    ),
}
RECOMPUTED = ("8B",)
AIM = 0.5
"""MFU in bf16, compiled."""
MOST_WAITS = 1
SYNCHRONIZATIONS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
"""The calls of CUDA in which the host waits."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--rounds", type=int, default=10, help="steps of each that count, after five that do not")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.gpu: nothing is measured, as there is no GPU here", file=sys.stderr)
        return
    kinds: list[Precision] = ["bf16"]
    if torch.cuda.get_device_capability() >= LEAST_CAPABILITY:
        kinds.append("fp8")
    for model, precision, compiled in itertools.product(arguments.models, kinds, (False, True)):
        measure(model, precision, compiled, arguments.rounds)


def measure(model: str, precision: Precision, compiled: bool, rounds: int) -> None:
    """Print the lines of one combination; the bare loop is in bf16 whatever ours is in."""
    device = torch.device("cuda", 0)
    shape, batch = MODELS[model]
    seconds, waited = {}, {}
    # One after the other, as two of the larger ones have no room beside each other.
    for name, make in (("ours", stepping.our_step), ("bare loop", stepping.bare)):
        with tempfile.TemporaryDirectory() as folder:
            activations: Literal["keep", "recompute"] = "recompute" if model in RECOMPUTED else "keep"
            layout = Layout(compile=compiled, activations=activations)
            chosen = stepping.settings(Path(folder), shape, batch, layout, precision)
            step = make(chosen, device)
            seconds[name] = statistics.median(stepping.in_turn({name: step}, device, 5, rounds)[name])
            waited[name] = synchronizations_per_step(step)
            del step
        gc.collect()
        torch.cuda.empty_cache()
    how = f"{model}, {precision}{', compiled' if compiled else ''}, {torch.cuda.get_device_name(device)}"
    _print(f"tokens/s, {how}", "tokens/s", batch.sequences * batch.length, seconds, None)
    flops, peak = _flops_per_step(chosen), peak_flops(device, precision)
    if precision == "bf16" and peak:
        _print(f"MFU, {how}", "share of peak", flops / peak, seconds, AIM)
    else:
        _print(f"FLOP/s, {how}", "FLOP/s", flops, seconds, None)
    line = {"benchmark": "gpu", "metric": f"waits for the GPU a step, {how}", "unit": "waits", "better": "lower"}
    value = waited.pop("ours")
    print(json.dumps({**line, "ours": value, "peers": waited, "aim": MOST_WAITS}), flush=True)


def synchronizations_per_step(step: stepping.Step) -> float:
    """How often the host waits for the GPU in a step, by the profiler, whose own waits at its end do not count."""
    once, thrice = (_count_synchronizations(step, count) for count in (1, 3))
    return (thrice - once) / 2


def _count_synchronizations(step: stepping.Step, count: int) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(count):
            step()
    return sum(average.count for average in profile.key_averages() if average.key in SYNCHRONIZATIONS)


def _flops_per_step(chosen: Config) -> float:
    with torch.device("meta"):
        model = build(chosen.model, Data(vocabulary=stepping.VOCABULARY, length=chosen.batch.length))
    return float(model.flops_per_sample * chosen.batch.sequences)


def _print(metric: str, unit: str, per_step: float, seconds: dict[str, float], aim: float | None) -> None:
    """A line of what is done per step, by each one's seconds; without an aim of its own, that is the bare loop's."""
    rates = {name: per_step / duration for name, duration in seconds.items()}
    value = rates.pop("ours")
    line = {"benchmark": "gpu", "metric": metric, "unit": unit, "better": "higher", "ours": value, "peers": rates}
    print(json.dumps({**line, "aim": rates["bare loop"] / 1.02 if aim is None else aim}), flush=True)


if __name__ == "__main__":
    main()

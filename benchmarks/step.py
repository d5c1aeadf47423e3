"""Time per step of our loop, everything switched on, beside a bare PyTorch loop and Lightning Fabric, in turn.

``python -m benchmarks.step [--rounds N] [--sizes small large]``: on a small model, whose steps show what is spent on
each one, and on a larger one, whose steps are as long as real ones. Fabric is left out where it is not installed.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.peers import steps as stepping
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch
from slipway.trainer.models.decoder import DecoderShape

SIZES = {
    "small": (
        DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384),
        Batch(sequences=4, length=128, micro=4),
    ),
    "large": (
        DecoderShape(layers=6, width=384, heads=6, kv_heads=2, hidden=1024),
        Batch(sequences=4, length=256, micro=2),
    ),
}
AIM = 1.02
"""Times the bare loop's."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step")
    parser.add_argument("--rounds", type=int, default=20, help="steps of each that count, after three that do not")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    arguments = parser.parse_args()
    if not stepping.has_fabric():
        print("benchmarks.step: without Lightning Fabric, which is not installed", file=sys.stderr)
    for size in arguments.sizes:
        measure(size, arguments.rounds)


def measure(size: str, rounds: int) -> None:
    """Print the line of one size."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    shape, batch = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        chosen = stepping.settings(Path(folder), shape, batch, Layout(), "fp32")
        steps = {"ours": stepping.our_step(chosen, device), "bare loop": stepping.bare(chosen, device)}
        steps |= {"Lightning Fabric": stepping.fabric(chosen, device)} if stepping.has_fabric() else {}
        seconds = stepping.in_turn(steps, device, 3, rounds)
    peers = {name: statistics.median(times) for name, times in seconds.items()}
    value = peers.pop("ours")
    metric = f"seconds a step, {stepping.parameters(chosen) / 1e6:.0f} M parameters, fp32, {device.type}"
    line = {"benchmark": "step", "metric": metric, "unit": "s", "better": "lower", "ours": value, "peers": peers}
    print(json.dumps({**line, "aim": AIM * peers["bare loop"]}), flush=True)


if __name__ == "__main__":
    main()

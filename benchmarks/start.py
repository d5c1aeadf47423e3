"""Start and restore by layout: the peak memory of a rank, and seconds, beside the same done in torchtitan's way.

``python -m benchmarks.start [--millions N] [--layouts NAME ...]``: a decoder of about N million parameters (1,000 is
the size to compare with; 300 fits a small machine) over 2 and 4 ranks on the CPU. Each line says the peak of the
resident memory above that of a process that has started a tiny model; the aim is this rank's share, and 1.1 times the
largest parameter. The peer builds on the meta device, shards with FSDP2, and draws or loads (DCP) each shard.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic
from slipway.trainer.config import resolved

LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "DDP, 2 ranks": (2, {}),
    "FSDP, 2 ranks": (2, {"shard": "full"}),
    "TP, 2 ranks": (2, {"tensor": 2}),
    "PP, 2 ranks": (2, {"pipeline": 2}),
    "FSDP, 4 ranks": (4, {"shard": "full"}),
    "FSDP x TP, 4 ranks": (4, {"shard": "full", "tensor": 2}),
    "PP x FSDP, 4 ranks": (4, {"shard": "full", "pipeline": 2}),
}
WIDTH, HIDDEN, VOCABULARY = 1024, 2816, 16_384
BLOCK = 2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH // 2 + 3 * WIDTH * HIDDEN
ACTIONS = {"draw": "start", "restore": "restore", "init": "start from a model in the Hugging Face layout"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start")
    parser.add_argument("--millions", type=int, default=1000, help="parameters")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--folder", type=Path, help="where checkpoints are written; by default a temporary folder")
    arguments = parser.parse_args()
    layers = max(4, round((1e6 * arguments.millions - 2 * VOCABULARY * WIDTH) / BLOCK / 4) * 4)
    for name in arguments.layouts:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            measure(name, layers, Path(folder))


def measure(name: str, layers: int, folder: Path) -> None:
    """Print the lines of one layout."""
    ranks, layout = LAYOUTS[name]
    model = {"layers": layers, "width": WIDTH, "heads": 16, "kv_heads": 8, "hidden": HIDDEN}
    config = configuration(folder, model, layout)
    torchrun(ranks, "benchmarks.parts.start_rank", config, "save,draw,restore,init", folder)
    peer = {}
    if layout == {"shard": "full"}:
        sizes = (layers, WIDTH, HIDDEN, VOCABULARY)
        torchrun(ranks, "benchmarks.peers.start", "save", folder, *sizes)
        for action in ("draw", "restore"):
            torchrun(ranks, "benchmarks.peers.start", action, folder, *sizes)
            peer[action] = json.loads((folder / f"peer-{action}.json").read_text())
    for action, noun in ACTIONS.items():
        figures = json.loads((folder / f"{action}.json").read_text())
        aim = {"peak": figures["share"] + 1.1 * figures["largest"]}
        for metric, unit in (("peak", "B"), ("seconds", "s")):
            peers = {"meta, then each shard": peer[action][metric]} if action in peer else {}
            line = {"benchmark": "start", "metric": f"{metric} of a {noun}, {name}", "unit": unit, "better": "lower"}
            print(json.dumps({**line, "ours": figures[metric], "peers": peers, "aim": aim.get(metric)}), flush=True)


def configuration(folder: Path, model: Mapping[str, Any], layout: Mapping[str, Any]) -> Path:
    """The path of a configuration of such a training, written to `folder`."""
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    value = {
        "format": resolved.FORMAT,
        "training": "start",
        "snapshot": "0" * 64,
        "model": {"kind": "decoder", **model},
        "batch": {"sequences": 8, "length": 128, "micro": 1},
        "optimizer": {"learning_rate": 0.001},
        "run": {"steps": 10},
        "checkpoint": {"every": 5},
        "layout": dict(layout),
        "placement": placement,
    }
    path = folder / "config.json"
    path.write_bytes(atomic.readable_json(value))
    return path


def torchrun(ranks: int, module: str, *arguments: object) -> None:
    """Run a module on `ranks` ranks of this machine. Raises CalledProcessError when one of them fails."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [*agent, f"--nproc-per-node={ranks}", "-m", module, *map(str, arguments)]
    # What is freed goes back to the kernel at once: kept by the allocator, it would hide a part of the next peak.
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    environment = {**os.environ, **allocator, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, env=environment, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()

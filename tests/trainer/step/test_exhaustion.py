"""Out of memory: the micro-batch is halved and the global batch kept.

Real processes whose address space is limited, which stands in for a card's memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.trainer.conftest import CODE, settings
from trainer.base import atomic
from trainer.config import resolved
from trainer.config.resolved import Config
from trainer.step import exhaustion

LARGE = {"sequences": 64, "length": 512, "micro": 64}
"""A sequence takes about 2 MiB of activations in the tiny model, most of it for the logits and attention."""


def configured(folder: Path, layout: dict[str, Any], **batch: Any) -> Path:
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    named = {"format": resolved.FORMAT, "training": "tiny", "snapshot": "0" * 64, "placement": placement}
    path = folder / "config.json"
    path.write_bytes(atomic.readable_json({**named, **settings(batch={**LARGE, **batch}), "layout": layout}))
    return path


def train(
    path: Path, mebibytes: int, ranks: int = 1, limited: str = "all", steps: int = 2, limit_at: int = 0
) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what was said, and the errors; no rank is started again."""
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    module = [*agent, "-m"] if ranks > 1 else []
    surroundings = {
        **os.environ,
        "PYTHONPATH": str(CODE),
        "OMP_NUM_THREADS": "1",
        # Freed tensors go back to the kernel, as they do on a device: else address space stays taken by the heap.
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    arguments = [str(path), str(mebibytes), limited, str(steps), str(limit_at)]
    command = [sys.executable, "-m", *module, "tests.trainer.exhausted_process", *arguments]
    ended = subprocess.run(command, cwd=CODE, env=surroundings, capture_output=True, text=True, timeout=280)
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr


def losses(said: list[dict[str, Any]], rank: int = 0) -> list[float]:
    return [each["loss"] for each in said if "loss" in each and each["rank"] == rank]


def test_a_noted_micro_batch_holds_for_as_many_ranks_in_the_same_layout(tmp_path: Path) -> None:
    four: Config = resolved.load(configured(tmp_path, {"shard": "full"}, micro=4))
    assert exhaustion.noted_micro_batch(four, ranks=8) == 4
    exhaustion.note_micro_batch(four, ranks=8, micro=2)
    assert exhaustion.noted_micro_batch(four, ranks=8) == 2
    assert exhaustion.noted_micro_batch(four, ranks=16) == 4
    assert exhaustion.noted_micro_batch(resolved.load(configured(tmp_path, {}, micro=4)), ranks=8) == 4
    assert exhaustion.noted_micro_batch(resolved.load(configured(tmp_path, {"shard": "full"}, micro=1)), ranks=8) == 1

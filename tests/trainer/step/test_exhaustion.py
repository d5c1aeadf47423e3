"""Out of memory: the micro-batch is halved and the global batch kept.

Real processes whose address space is limited, which stands in for a card's memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def train(path: Path, mebibytes: int, ranks: int = 1, restarts: int = 0) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what was said."""
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    module = [*agent, f"--max-restarts={restarts}", "-m"] if ranks > 1 else []
    surroundings = {
        **os.environ,
        "PYTHONPATH": str(CODE),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [sys.executable, "-m", *module, "tests.trainer.exhausted_process", str(path), str(mebibytes)]
    ended = subprocess.run(command, cwd=CODE, env=surroundings, capture_output=True, text=True, timeout=280)
    assert "Traceback" not in ended.stderr or ranks > 1, ended.stderr
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.slow
def test_one_process_halves_the_micro_batch_until_it_fits_and_keeps_the_global_batch(tmp_path: Path) -> None:
    code, said = train(configured(tmp_path, {}), mebibytes=200)
    assert code == 0
    shrunk = [each for each in said if "event" in each]
    losses = [each["loss"] for each in said if "loss" in each]
    assert [each["event"] for each in shrunk] == ["out_of_memory"] * len(shrunk)
    assert [each["micro"] for each in shrunk] == [64 // 2**times for times in range(len(shrunk))]
    assert "can't allocate memory" in shrunk[0]["reason"]
    code, roomy = train(configured(tmp_path, {}, micro=1), mebibytes=4096)
    assert losses == pytest.approx([each["loss"] for each in roomy if "loss" in each], rel=1e-6)


@pytest.mark.slow
def test_without_memory_for_one_sample_the_training_ends_with_advice(tmp_path: Path) -> None:
    code, said = train(configured(tmp_path, {}, length=8192, micro=2, sequences=2), mebibytes=8)
    assert code == 1
    assert said[-1]["ended"].startswith("out of memory with a micro-batch of 1: divide the model (layout.shard")


@pytest.mark.slow
def test_several_ranks_start_again_with_a_smaller_micro_batch(tmp_path: Path) -> None:
    code, said = train(configured(tmp_path, {}, sequences=128), mebibytes=200, ranks=2, restarts=8)
    assert code == 0
    ended = [each["ended"] for each in said if "ended" in each]
    assert "out of memory with a micro-batch of 64: the next start takes 32" in ended
    assert len([each for each in said if "loss" in each]) == 4


def test_a_noted_micro_batch_holds_for_as_many_ranks_in_the_same_layout(tmp_path: Path) -> None:
    four: Config = resolved.load(configured(tmp_path, {"shard": "full"}, micro=4))
    assert exhaustion.noted_micro_batch(four, ranks=8) == 4
    exhaustion.note_micro_batch(four, ranks=8, micro=2)
    assert exhaustion.noted_micro_batch(four, ranks=8) == 2
    assert exhaustion.noted_micro_batch(four, ranks=16) == 4
    assert exhaustion.noted_micro_batch(resolved.load(configured(tmp_path, {}, micro=4)), ranks=8) == 4
    assert exhaustion.noted_micro_batch(resolved.load(configured(tmp_path, {"shard": "full"}, micro=1)), ranks=8) == 1

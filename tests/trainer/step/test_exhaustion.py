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

from slipway.trainer.base import atomic
from slipway.trainer.config import resolved
from slipway.trainer.config.resolved import Config
from slipway.trainer.record import causes
from slipway.trainer.step import exhaustion
from tests.trainer.conftest import CODE, settings

LARGE = {"sequences": 64, "length": 512, "micro": 64}
"""A sequence takes about 2 MiB of activations in the tiny model, most of it for the logits and attention."""


def configured(folder: Path, layout: dict[str, Any], communication: dict[str, Any] | None = None, **batch: Any) -> Path:
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    named = {"format": resolved.FORMAT, "training": "tiny", "snapshot": "0" * 64, "placement": placement}
    path = folder / "config.json"
    path.write_bytes(
        atomic.readable_json(
            {**named, **settings(batch={**LARGE, **batch}), "layout": layout, "communication": communication or {}}
        )
    )
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


def losses(events: list[dict[str, Any]], rank: int = 0) -> list[float]:
    return [event["loss"] for event in events if "loss" in event and event["rank"] == rank]


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of a process that has all the memory that it asks for."""
    code, events, errors = train(configured(tmp_path_factory.mktemp("roomy"), {}, micro=8, sequences=64), 4096)
    assert code == 0, errors
    return losses(events)


@pytest.mark.slow
def test_one_process_halves_the_micro_batch_until_it_fits_and_keeps_the_global_batch(
    tmp_path: Path, roomy: list[float]
) -> None:
    code, events, errors = train(configured(tmp_path, {}), mebibytes=120)
    assert code == 0, errors
    shrunk = [event for event in events if event.get("event") == "out_of_memory"]
    assert shrunk and [event["micro"] for event in shrunk] == [64 // 2**times for times in range(len(shrunk))]
    assert "can't allocate memory" in shrunk[0]["reason"]
    [probed] = [event for event in events if event.get("event") == "probed"]
    assert (probed["asked"], probed["micro"]) == (64, shrunk[-1]["retried_with"]), "it was found before the first step"
    assert losses(events) == pytest.approx(roomy, rel=1e-6)


@pytest.mark.slow
def test_without_memory_for_one_sample_the_training_ends_with_advice(tmp_path: Path) -> None:
    code, events, errors = train(configured(tmp_path, {}, length=8192, micro=2, sequences=2), mebibytes=8)
    assert code == 1, errors
    assert events[-1]["ended"].startswith("out of memory with a micro-batch of 1: divide the model (layout.shard")
    assert events[-1]["kind"] == causes.OUT_OF_MEMORY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "micro", "mebibytes"),
    [({"shard": "none"}, 64, 60), ({"shard": "full"}, 64, 60), ({"pipeline": 2}, 32, 45)],
    ids=["replicas", "full-shard", "pipeline"],
)
def test_ranks_go_on_together_in_the_same_start_when_one_of_them_runs_out_of_memory(
    tmp_path: Path, roomy: list[float], layout: dict[str, Any], micro: int, mebibytes: int
) -> None:
    """The others are in the middle of an exchange with it."""
    path = configured(tmp_path, layout, micro=micro)
    code, events, errors = train(path, mebibytes, ranks=2, limited="1")
    assert code == 0, errors
    shrunk = [event for event in events if event.get("event") == "out_of_memory" and event["rank"] == 0]
    assert shrunk and all(event["reason"].startswith("rank 1: ") for event in shrunk)
    assert losses(events, 0) == losses(events, 1) == pytest.approx(roomy, rel=1e-5)
    assert json.loads((tmp_path / "store" / "micro.json").read_bytes())["micro"] == shrunk[-1]["retried_with"]


@pytest.mark.nightly
def test_a_later_step_is_done_again_from_the_weights_and_the_optimiser_in_memory(
    tmp_path: Path, roomy: list[float]
) -> None:
    code, events, errors = train(
        configured(tmp_path, {"shard": "full"}), mebibytes=60, ranks=2, limited="0", steps=3, limit_at=1
    )
    assert code == 0, errors
    assert any(event.get("event") == "out_of_memory" for event in events)
    assert losses(events)[:2] == pytest.approx(roomy, rel=1e-5)


@pytest.mark.nightly
def test_no_rank_is_left_waiting_when_not_even_one_sample_fits(tmp_path: Path) -> None:
    path = configured(tmp_path, {"shard": "full"}, length=16384, micro=2, sequences=4)
    code, events, _ = train(path, mebibytes=50, ranks=2, limited="1")
    assert code == 1
    assert any("out of memory with a micro-batch of 1" in event.get("ended", "") for event in events)


@pytest.mark.slow
def test_gradients_by_powersgd_begin_again_with_the_half(tmp_path: Path) -> None:
    """Their errors change in the middle of a step, so that a step cannot be done again."""
    communication = {"compression": "powersgd", "powersgd_rank": 2}
    path = configured(tmp_path, {}, communication=communication)
    code, events, _ = train(path, mebibytes=60, ranks=2, limited="1")
    assert code == 1
    [ended] = [event for event in events if "ended" in event]
    assert ended["ended"] == "out of memory with a micro-batch of 32: the next start takes 16"
    assert ended["kind"] == causes.ANSWERED
    assert exhaustion.noted_micro_batch(resolved.load(path), ranks=2) == 16


def test_the_allocators_error_is_found_beneath_that_of_a_pipelines_schedule() -> None:
    beneath = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
    above = RuntimeError("stage 1 failed to run forward")
    assert not exhaustion.is_out_of_memory(above)
    above.__cause__ = beneath
    assert exhaustion.is_out_of_memory(above)
    assert exhaustion.first_line(above) == str(beneath)


def test_a_noted_micro_batch_holds_for_as_many_ranks_in_the_same_layout(tmp_path: Path) -> None:
    four: Config = resolved.load(configured(tmp_path, {"shard": "full"}, micro=4))
    assert exhaustion.noted_micro_batch(four, ranks=8) == 4
    exhaustion.note_micro_batch(four, ranks=8, micro=2)
    assert exhaustion.noted_micro_batch(four, ranks=8) == 2
    assert exhaustion.noted_micro_batch(four, ranks=16) == 4
    assert exhaustion.noted_micro_batch(resolved.load(configured(tmp_path, {}, micro=4)), ranks=8) == 4
    assert exhaustion.noted_micro_batch(resolved.load(configured(tmp_path, {"shard": "full"}, micro=1)), ranks=8) == 1

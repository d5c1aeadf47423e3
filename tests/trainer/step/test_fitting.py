"""Fitting: a micro-batch that does not fit the memory becomes smaller before the first step."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import VOCAB, settings
from trainer.base import atomic
from trainer.config import resolved
from trainer.config.resolved import Config
from trainer.config.shapes import Data
from trainer.node.world import World
from trainer.start import memory
from trainer.step import exhaustion, fitting
from trainer.step.engine import Engine

ALONE = World(0, 1, 0, torch.device("cpu"))
DATA = Data(vocabulary=VOCAB, length=512)


def configured(folder: Path, **changed: Any) -> Config:
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    named = {"format": resolved.FORMAT, "training": "tiny", "snapshot": "0" * 64, "placement": placement}
    sections = settings(**{"batch": {"sequences": 64, "length": 512, "micro": 64}, **changed})
    path = folder / "config.json"
    path.write_bytes(atomic.readable_json({**named, **sections}))
    return resolved.load(path)


def peak(chosen: Config, micro: int) -> int:
    """The estimated bytes of a step, as the estimate's own tests compare them with what is allocated."""
    model = memory.decoder(chosen.model)
    plan = memory.MemoryPlan(model=model, vocabulary=VOCAB, length=DATA.length, micro=micro, device="cpu")
    return memory.estimate(plan).total


@pytest.mark.parametrize("room", [1, 5, 64])
def test_the_peak_of_the_largest_micro_batch_is_within_the_free_memory(tmp_path: Path, room: int):
    chosen = configured(tmp_path)
    assert fitting.largest_micro_batch(chosen, ALONE, DATA, peak(chosen, room)) == room
    assert fitting.largest_micro_batch(chosen, ALONE, DATA, peak(chosen, room) - 1) == room - 1


def test_recomputed_activations_leave_room_for_a_larger_micro_batch(tmp_path: Path):
    kept = configured(tmp_path)
    recomputed = configured(tmp_path, layout={"activations": "recompute"})
    free = peak(kept, 8)
    assert (fitting.largest_micro_batch(recomputed, ALONE, DATA, free) or 0) > 8


def test_a_micro_batch_that_cannot_be_estimated_is_not_changed(tmp_path: Path):
    divided = configured(tmp_path, layout={"tensor": 2})
    assert fitting.largest_micro_batch(divided, ALONE, DATA, 0) is None


def test_an_engine_without_memory_for_its_micro_batch_takes_a_smaller_one_and_notes_it(tmp_path: Path):
    """Of a length whose micro-batch no machine has the memory for; nothing of that size is allocated."""
    chosen = configured(tmp_path, batch={"sequences": 2**40, "length": 512, "micro": 2**40})
    told: list[dict[str, Any]] = []
    Engine(chosen, ALONE, DATA, lambda event, **fields: told.append({"event": event, **fields}))
    [said] = told
    assert (said["event"], said["asked"]) == ("micro_batch", 2**40)
    assert 1 <= said["micro"] < 2**40
    assert exhaustion.noted_micro_batch(chosen, 1) == said["micro"]
    assert json.loads((tmp_path / "store" / "micro.json").read_bytes())["micro"] == said["micro"]

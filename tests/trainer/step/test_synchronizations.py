"""Waits: how often a step's host waits for its device, counted as what the step reads of its tensors.

On a GPU each read is a wait until all work before it is done. On a CPU nothing waits, but the reads are the same.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from benchmarks.peers import steps as stepping
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch, Precision
from slipway.trainer.loop import Trainer
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.recorder import RankRecorder
from tests.trainer.calls import Calls

READS = {
    "item",
    "tolist",
    "cpu",
    "numpy",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "nonzero",
    "equal",
    "allclose",
}
SCALAR = torch.ops.aten._local_scalar_dense.default
"""What an operation calls that reads a number, whoever asked for it."""


class Reads(TorchFunctionMode):
    """Counts what Python reads of tensors, by the name of the method."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if (name := getattr(function, "__name__", "")) in READS:
            self.counts[name] += 1
        with torch._C.DisableTorchFunction():
            return function(*arguments, **(options or {}))


@pytest.fixture
def trainer(tmp_path: Path):
    """A trainer that has done its first step, with three micro-batches a step."""
    trainers: list[Trainer] = []

    def prepared(precision: Precision) -> Trainer:
        shape, batch = (
            DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=64),
            Batch(sequences=6, length=16, micro=2),
        )
        config = stepping.settings(tmp_path, shape, batch, Layout(), precision)
        store, token = Path(config.placement.store), fence.Token(1)
        fence.claim(store, token, nodes=("local",), cause="test", by="test")
        trainer = Trainer(config, World(0, 1, 0, torch.device("cpu")), token, RankRecorder(store, token, 0))
        trainers.append(trainer)
        trainer.restore()
        trainer.train_step(False)
        return trainer

    yield prepared
    for started_trainer in trainers:
        started_trainer.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_step_waits_for_its_device_once(trainer, precision: Precision):
    ready = trainer(precision)
    with Reads() as reads, Calls() as calls:
        ready.train_step(False)
    assert reads.counts == {"tolist": 1}
    assert calls.of[SCALAR] == 0


def test_every_way_to_read_a_tensor_is_counted():
    value = torch.ones(2)
    with Reads() as reads, Calls() as calls:
        float(value[0]), value[0].item(), bool(value[0] > 0), value.tolist(), int(value[1]), value.cpu(), value.numpy()
    assert reads.counts == dict.fromkeys(("__float__", "item", "__bool__", "tolist", "__int__", "cpu", "numpy"), 1)
    assert calls.of[SCALAR] == 4

"""A process that imports the trainer, takes a step with each optimiser, and prints which modules it has imported."""

import sys
import tempfile
from typing import get_args

import numpy as np
import torch

import slipway.trainer.loop  # noqa: F401 (a rank imports all of it)
from slipway.trainer.config import operation, resolved, sections
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine


def take_a_step(folder: str, optimizer: sections.OptimizerConfig) -> None:
    config = resolved.Config(
        training="tiny",
        snapshot="0" * 64,
        model=DecoderShape(layers=1, width=16, heads=2, kv_heads=2, hidden=16),
        batch=sections.Batch(sequences=2, length=8, micro=1),
        optimizer=optimizer,
        run=sections.Run(steps=1),
        checkpoint=sections.Checkpoint(every=1),
        placement=operation.Placement(store=folder, durable=folder, nvme=folder),
    )
    engine = Engine(config, World(0, 1, 0, torch.device("cpu")), Data(vocabulary=8, length=8))
    engine.accumulate(np.zeros((2, 9), np.uint16), np.arange(2, dtype=np.uint64))
    engine.clip()
    engine.update(rate=0.1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for kind in get_args(sections.OptimizerConfig.__annotations__["kind"]):
            take_a_step(scratch, sections.OptimizerConfig(kind=kind, learning_rate=0.1))
    print("\n".join(sys.modules))

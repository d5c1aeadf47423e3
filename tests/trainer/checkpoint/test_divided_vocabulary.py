"""Checkpoints of matrices that lie over the ranks by tokens: one process reads those of two ranks, and the reverse.

The vocabulary has 65 rows, which two ranks do not divide evenly.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from slipway.trainer.base import digest
from slipway.trainer.checkpoint import restore
from slipway.trainer.config import layout, operation, resolved, sections
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.node.world import World
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.engine import Engine
from tests.trainer import gang
from tests.trainer.checkpoints import TOKEN, durable, outcomes, progress, saving

pytestmark = pytest.mark.slow


def engine_of(world: World, folder: Path, seed: int) -> Engine:
    """An encoder, whose embedding has a row for the mask, divided over all ranks."""
    config = resolved.Config(
        training="tiny",
        snapshot="0" * 64,
        model=EncoderShape(layers=1, width=16, heads=2, hidden=32),
        batch=sections.Batch(sequences=2, length=8, micro=1),
        optimizer=sections.OptimizerConfig(learning_rate=0.1),
        run=sections.Run(steps=20, seed=seed),
        checkpoint=sections.Checkpoint(every=5),
        layout=operation.Layout(tensor=world.size),
        placement=operation.Placement(store=str(folder), durable=str(folder), nvme=str(folder)),
    )
    world = dataclasses.replace(world, mesh=layout.check(config, world.size, world.size))
    return Engine(config, world, Data(vocabulary=64, length=8, seed=seed))


def digests(engine: Engine) -> dict[str, str]:
    """Of every whole tensor of the model and its optimiser, bit for bit."""
    tensors: dict[str, Tensor] = dict(engine.model.state_dict())
    for name, parameter in engine.model.named_parameters():
        tensors |= {f"{name}/{key}": value for key, value in engine.optimizer.state[parameter].items()}
    tensors_by_name = {name: tensor.full_tensor() if is_divided(tensor) else tensor for name, tensor in tensors.items()}
    return {
        name: digest.of_bytes(tensor.detach().contiguous().numpy().tobytes())
        for name, tensor in tensors_by_name.items()
    }


def save(world: World, folder: Path) -> dict[str, str]:
    """Save a checkpoint after one step."""
    engine = engine_of(world, folder, seed=1)
    engine.accumulate(np.full((2, 9), 7, np.uint16), np.arange(2, dtype=np.uint64))
    engine.clip()
    engine.update(0.1)
    with saving(folder, world=world) as saver:
        world.all_gather(None)
        saver.prepare(engine)
        saver.save(engine, progress(5))
        events = outcomes(saver)
        world.all_gather(None)
    assert [event["event"] for event in events] == (["committed"] if world.is_rank_zero else [])
    return digests(engine)


def load(world: World, folder: Path) -> dict[str, str]:
    """Load it into an engine that began with other weights."""
    engine = engine_of(world, folder, seed=99)
    good = restore.newest_verified(folder / "store", world, TOKEN, durable(folder), print, print)
    assert good is not None
    restore.load(engine, good[1], world)
    return digests(engine)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 2)])
def test_a_divided_vocabulary_is_loaded_by_any_number_of_ranks(tmp_path: Path, before: int, after: int) -> None:
    (saved, *_) = gang.run(before, save, tmp_path)
    assert "embedding.weight/exp_avg" in saved and "bias/exp_avg" in saved
    assert gang.run(after, load, tmp_path) == [saved] * after

"""Randomness by share: ranks with the same activations draw the same numbers, and all others numbers of their own."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipway.trainer.config import resolved
from slipway.trainer.config.layout import Mesh
from slipway.trainer.loading.order import rank_slice
from slipway.trainer.models.model import Data
from slipway.trainer.node.world import World
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step import randomness
from slipway.trainer.step.engine import Engine
from tests.trainer import gang, layout_process
from tests.trainer.conftest import settings

STEPS = 5
MODEL = {"kind": "tests.trainer.dropping", "layers": 1, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 64}


def config(folder: Path, **layout: Any) -> resolved.Config:
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    sections = settings(model=MODEL, layout=layout)
    sections["model"] = MODEL
    document = {"format": resolved.FORMAT, "training": "tiny", "snapshot": "0" * 64, **sections, "placement": placement}
    (folder / "config.json").write_text(json.dumps(document))
    return resolved.load(folder / "config.json")


def whole_weights_after(world: World, config: resolved.Config, mesh: Mesh, first: int = 0) -> torch.Tensor:
    """What this rank holds whole after some steps; `first` numbers are drawn before them, as by another history."""
    world = replace(world, mesh=mesh)
    engine = Engine(config, world, Data(vocabulary=layout_process.VOCABULARY, length=config.batch.length))
    torch.rand(first), np.random.random(first), [random.random() for _ in range(first)]
    for step in range(STEPS):
        span = rank_slice(config.batch.sequences, world.data_rank, world.data_size)
        numbers = (step * config.batch.sequences + np.arange(span.start, span.stop)).astype(np.uint64)
        engine.accumulate(layout_process.sequences(numbers, config.batch.length), numbers)
        engine.clip()
        engine.update(config.optimizer.learning_rate)
    engine.check_copies(STEPS)
    return torch.cat(
        [parameter.detach().flatten() for parameter in engine.model.parameters() if not is_divided(parameter)]
    )


def test_ranks_that_share_matrices_drop_the_same_activations(tmp_path: Path):
    one, other = gang.run(2, whole_weights_after, config(tmp_path, tensor=2), Mesh(tensor=2))
    assert len(one) and torch.equal(one, other)


def dropped(world: World, config: resolved.Config, mesh: Mesh) -> torch.Tensor:
    """The activations that this rank dropped in the forward pass of a step: [batch, positions, features]."""
    masks: list[torch.Tensor] = []
    engine = Engine(config, replace(world, mesh=mesh), Data(vocabulary=layout_process.VOCABULARY, length=32))
    engine.model.blocks[0].register_forward_pre_hook(lambda _, arguments: masks.append(arguments[0].detach() == 0))
    numbers = np.arange(2, dtype=np.uint64)
    engine.accumulate(layout_process.sequences(numbers, 32), numbers, 2)
    return masks[0]


def test_ranks_that_share_a_sequence_drop_their_own_parts_of_it_each_in_a_pattern_of_its_own(tmp_path: Path):
    mesh = Mesh(replicas=2, context=2)
    one, other = gang.run(2, dropped, config(tmp_path, context=2), mesh)
    assert one.shape == other.shape and one.any() and other.any()
    assert not torch.equal(one, other)


def test_what_a_step_draws_does_not_depend_on_what_was_drawn_before(tmp_path: Path):
    alone = World(0, 1, 0, torch.device("cpu"))
    first, second = (whole_weights_after(alone, config(tmp_path), Mesh(), drawn) for drawn in (0, 17))
    assert torch.equal(first, second)


def drawn(sample: int, stage: int) -> tuple[float, float, float]:
    randomness.seed_for_step(3, sample, stage)
    return float(torch.rand(())), float(np.random.random()), random.random()


def test_shares_stages_and_steps_draw_numbers_of_their_own_from_every_generator():
    draws = [drawn(sample, stage) for sample in (0, 4, 8) for stage in (0, 1)]
    assert all(len(set(numbers)) == len(draws) for numbers in zip(*draws, strict=True))
    assert drawn(4, 1) == drawn(4, 1)

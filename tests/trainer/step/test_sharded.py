"""Divided weights under mixed precision: what the blocks add to has the bits that it has on one rank."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slipway.trainer.config import resolved
from slipway.trainer.config.layout import Mesh
from slipway.trainer.models.model import Data
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine
from tests.trainer import gang, layout_process
from tests.trainer.conftest import LENGTH, settings

GPT2 = {"kv_heads": 4, "positions": "learned", "longest": 32, "norm": "layer", "activation": "gelu", "bias": "all"}
ENCODER = {"kind": "encoder", "layers": 2, "width": 32, "heads": 4, "hidden": 64}


def config(folder: Path, model: dict[str, Any], **layout: Any) -> resolved.Config:
    placement = {name: str(folder / name) for name in ("store", "durable", "nvme")}
    sections = settings(model=model, layout=layout, run={"precision": "bf16"})
    document = {"format": resolved.FORMAT, "training": "tiny", "snapshot": "0" * 64, **sections, "placement": placement}
    (folder / "config.json").write_text(json.dumps(document))
    return resolved.load(folder / "config.json")


def stream(world: World, config: resolved.Config, mesh: Mesh) -> torch.Tensor:
    """The input of the first block in a step over two sequences, the same ones on every rank."""
    inputs: list[torch.Tensor] = []
    engine = Engine(config, replace(world, mesh=mesh), Data(vocabulary=layout_process.VOCABULARY, length=LENGTH))
    engine.model.blocks[0].register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].detach()))
    numbers = np.arange(2, dtype=np.uint64)
    engine.accumulate(layout_process.sequences(numbers, LENGTH), numbers, 2 * engine.world.data_size)
    return inputs[0]


@pytest.mark.slow
@pytest.mark.parametrize("model", [{}, GPT2, {**GPT2, "tied": True}, ENCODER], ids=["llama", "gpt2", "tied", "bert"])
def test_the_residual_stream_begins_with_the_bits_that_it_has_on_one_rank(
    tmp_path: Path, model: dict[str, Any]
) -> None:
    alone = stream(World(0, 1, 0, torch.device("cpu")), config(tmp_path, model), Mesh())
    ranks = gang.run(2, stream, config(tmp_path, model, shard="full"), Mesh(shards=2))
    assert alone.dtype == torch.float32
    for rank_stream in ranks:
        assert rank_stream.dtype == torch.float32 and torch.equal(rank_stream, alone)

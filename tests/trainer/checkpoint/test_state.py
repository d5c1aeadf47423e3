"""The state in a checkpoint: a training resumes from it exactly."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from slipway.trainer.checkpoint import restore
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.checkpoint.saving import random_state
from slipway.trainer.record import fence
from tests.trainer.checkpoints import ALONE, SmallEngine, saved


def newest(folder: Path) -> Contents:
    commit = fence.commits(folder / "store")[-1]
    return contents.open_verified(folder / "durable" / commit.folder, commit.manifest)


def resumable_state(engine: SmallEngine) -> dict[str, Any]:
    """Every number that the engine would go on from, by name."""
    state: dict[str, Any] = dict(engine.model.state_dict())
    for name, parameter in engine.model.named_parameters():
        state |= {f"{name}/{key}": value for key, value in engine.optimizer.state.get(parameter, {}).items()}
    return state | {"scale": engine.extra["scale"], **engine.extra["outer"]}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name], name


def test_a_training_resumes_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    engine = SmallEngine()
    saved(tmp_path, 1, 2, engine=engine)
    checkpoint = newest(tmp_path)
    resumed = SmallEngine(seed=9)
    restore.load(resumed, checkpoint, ALONE)
    assert_same(resumable_state(resumed), resumable_state(engine))
    random_state.restore(checkpoint.progress().random_states[0])
    resumed.step()
    random_state.restore(checkpoint.progress().random_states[0])
    engine.step()
    assert_same(resumable_state(resumed), resumable_state(engine))


OPTIMIZERS: dict[str, Any] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
    "fused adamw": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "sgd with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "nadam": torch.optim.NAdam,
    "adafactor": torch.optim.Adafactor,
    "rprop": torch.optim.Rprop,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_every_optimiser_is_saved(tmp_path: Path, name: str) -> None:
    engine, resumed = SmallEngine(), SmallEngine(seed=9)
    for small_engine in (engine, resumed):
        small_engine.optimizer = OPTIMIZERS[name](small_engine.model.parameters())
    saved(tmp_path, 1, engine=engine)
    restore.load(resumed, newest(tmp_path), ALONE)
    assert_same(resumable_state(resumed), resumable_state(engine))
    for small_engine in (engine, resumed):
        torch.manual_seed(4)
        small_engine.step()
    assert_same(resumable_state(resumed), resumable_state(engine))


def test_each_file_is_a_safetensors_file_with_the_tensors_of_its_group(tmp_path: Path) -> None:
    engine = SmallEngine()
    (commit,) = saved(tmp_path, 1, engine=engine)
    folder = tmp_path / "durable" / commit.folder
    read = {path.name: safetensors.torch.load_file(path) for path in folder.glob("*.safetensors")}
    frozen = {"2.weight"}
    assert set(read["model-00000.safetensors"]) == set(engine.model.state_dict()) - frozen
    assert set(read["frozen-00000.safetensors"]) == frozen
    trained = [name for name, parameter in engine.model.named_parameters() if parameter.requires_grad]
    moments = {f"{name}/{key}" for name in trained for key in ("step", "exp_avg", "exp_avg_sq")}
    assert set(read["optimizer-00000.safetensors"]) == moments | {"outer/momentum"}
    assert torch.equal(read["model-00000.safetensors"]["0.weight"], engine.model.state_dict()["0.weight"])


def test_tensors_of_every_element_type_and_empty_tensors_are_saved(tmp_path: Path) -> None:
    engine, resumed = SmallEngine(), SmallEngine()
    types = [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool]
    for small_engine, fill in ((engine, 1), (resumed, 0)):
        buffers = nn.Module()
        for dtype in types:
            buffers.register_buffer(str(dtype).replace("torch.", "of_"), torch.full((3,), fill, dtype=dtype))
        buffers.register_buffer("nothing", torch.empty(0, 4))
        buffers.register_buffer("strided", torch.full((4, 6), fill).t())
        small_engine.model.add_module("3", nn.Identity())
        small_engine.model.get_submodule("3").add_module("all", buffers)
    saved(tmp_path, 1, engine=engine)
    restore.load(resumed, newest(tmp_path), ALONE)
    assert_same(dict(resumed.model.state_dict()), dict(engine.model.state_dict()))


def test_a_checkpoint_of_another_model_is_refused_with_every_tensor_that_does_not_fit(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with pytest.raises(ValueError, match="another model") as refused:
        restore.load(SmallEngine(rows=13), newest(tmp_path), ALONE)
    assert "model/0.weight: found [12, 16], expected [13, 16]" in str(refused.value)
    assert "model/2.weight: found [8, 12], expected [8, 13]" in str(refused.value)


def test_a_checkpoint_of_a_larger_model_is_refused_too(tmp_path: Path) -> None:
    engine = SmallEngine()
    engine.model.add_module("3", nn.Linear(8, 8))
    saved(tmp_path, 1, engine=engine)
    with pytest.raises(ValueError, match=r"another model: it also has model/3\.bias; model/3\.weight"):
        restore.load(SmallEngine(), newest(tmp_path), ALONE)


def test_every_random_generator_continues_from_its_saved_state() -> None:
    def draw() -> tuple[float, float, list[float]]:
        return random.random(), random.gauss(0, 1), [*np.random.random(3), np.random.normal(), *torch.rand(3).tolist()]

    draw()
    taken = json.loads(json.dumps(random_state.take()))
    following = draw(), draw()
    random.seed(9), np.random.seed(9), torch.manual_seed(9)
    random_state.restore(taken)
    assert (draw(), draw()) == following

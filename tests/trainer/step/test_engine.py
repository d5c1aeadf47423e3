"""The engine by itself: precisions, recomputation, frozen parameters, given weights."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from slipway.trainer.base import atomic
from slipway.trainer.config import resolved
from slipway.trainer.config.shapes import Data
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.parallel.eight_bits import product
from slipway.trainer.step.precision import GROWTH_STEPS, LEAST_SCALE, LossScale
from tests.trainer.calls import Calls
from tests.trainer.conftest import settings
from tests.trainer.layout_process import VOCABULARY, sequences

ALONE = World(0, 1, 0, torch.device("cpu"))


class Events(list[tuple[str, dict[str, Any]]]):
    """The events that an engine recorded."""

    def __call__(self, event: str, **fields: Any) -> None:
        self.append((event, fields))


@pytest.fixture
def make(tmp_path: Path):
    """An engine with parts of its configuration changed."""

    def engine_with(
        events: Events | None = None, layout: Mapping[str, Any] = MappingProxyType({}), **changed: dict[str, Any]
    ) -> Engine:
        placement = {name: str(tmp_path / name) for name in ("store", "durable", "nvme")}
        named = {"format": resolved.FORMAT, "training": "tiny", "snapshot": "0" * 64, "placement": placement}
        path = tmp_path / "config.json"
        path.write_bytes(atomic.readable_json({**named, **settings(**changed), "layout": dict(layout)}))
        read = resolved.load(path)
        return Engine(
            read, ALONE, Data(vocabulary=VOCABULARY, length=read.batch.length), Events() if events is None else events
        )

    return engine_with


def train(engine: Engine, steps: int = 3) -> list[tuple[float, float]]:
    """The loss and the gradient norm of each step."""
    figures = []
    for step in range(steps):
        numbers = np.arange(7 * step, 7 * step + 7, dtype=np.uint64)
        sums = engine.accumulate(sequences(numbers, engine.config.batch.length), numbers)
        figures.append((sums.loss, engine.clip()))
        engine.update(0.01)
    return figures


def weights(engine: Engine) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in engine.model.state_dict().items()}


def test_a_step_that_overflows_changes_no_weight_and_halves_the_scale(make) -> None:
    events = Events()
    engine = make(events, run={"precision": "fp16"})
    engine.load_extra_state({"loss_scale": [2.0**40, 7]})
    before = weights(engine)
    (first, _), *_ = train(engine, steps=1)
    assert np.isfinite(first)
    assert events == [("overflowed", {"loss_scale": 2.0**39})]
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(engine).items())
    assert engine.extra_state() == {"loss_scale": [2.0**39, 0]}


def test_the_scale_comes_down_until_steps_count_again(make) -> None:
    events = Events()
    engine = make(events, run={"precision": "fp16"})
    engine.load_extra_state({"loss_scale": [2.0**30, 0]})
    before = weights(engine)
    norms = [norm for _, norm in train(engine, steps=14)]
    assert len(events) == norms.count(0.0) > 0
    assert norms[-1] > 0
    assert any(not torch.equal(tensor, before[name]) for name, tensor in weights(engine).items())


def test_the_scale_doubles_after_many_steps_without_an_overflow() -> None:
    scale = LossScale(8.0)
    assert all(scale.accepts(True) for _ in range(GROWTH_STEPS))
    assert (scale.value, scale.steps) == (16.0, 0)


def test_a_gradient_that_is_not_finite_at_the_least_scale_is_not_hidden() -> None:
    assert LossScale(LEAST_SCALE).accepts(finite=False)


def test_only_fp16_has_a_state_of_its_own(make) -> None:
    assert make(run={"precision": "bf16"}).extra_state() == {}


@pytest.mark.parametrize("activations", ["selective", "recompute"])
def test_recomputation_changes_no_bit(make, activations: str) -> None:
    assert train(make(layout={"activations": activations})) == train(make())


def test_selective_recomputation_repeats_cheap_operations_and_no_product(make) -> None:
    calls = {
        activations: backward_calls(make(layout={"activations": activations}))
        for activations in ("keep", "selective", "recompute")
    }
    products, cheap = torch.ops.aten.mm.default, torch.ops.aten.silu.default
    assert calls["keep"][products] == calls["selective"][products] < calls["recompute"][products]
    assert [calls[activations][cheap] for activations in ("keep", "selective", "recompute")] == [0, 2, 2]


def backward_calls(engine: Engine) -> Counter[Any]:
    """The operations of a backward pass through the two blocks."""
    numbers = np.arange(2, dtype=np.uint64)
    inputs, targets = engine.model.prepare(sequences(numbers, engine.config.batch.length), numbers, torch.device("cpu"))
    loss = engine.model.loss(engine.model(inputs), targets)
    calls = Calls()
    with calls:
        torch.autograd.backward(loss)
    return calls.of


@pytest.mark.nightly
@pytest.mark.parametrize("activations", ["keep", "selective"])
def test_a_compiled_model_trains_like_one_that_is_not_compiled(make, activations: str) -> None:
    compiled = train(make(layout={"compile": True, "activations": activations}))
    assert np.array(compiled) == pytest.approx(np.array(train(make())), abs=1e-3)


def test_frozen_parameters_keep_their_values_and_the_rest_is_trained(make) -> None:
    engine = make(run={"freeze": ["embedding", "blocks.0."]})
    before = weights(engine)
    train(engine)
    same = {name for name, tensor in weights(engine).items() if torch.equal(tensor, before[name])}
    assert same == {name for name in before if name.startswith(("embedding", "blocks.0."))}


def test_a_prefix_without_parameters_is_refused_with_the_names_that_exist(make) -> None:
    with pytest.raises(ValueError, match=r"run\.freeze: no parameter begins with 'block\.'; there are embedding"):
        make(run={"freeze": ["block."]})


def test_given_weights_are_loaded(make) -> None:
    given_weights = {name: torch.randn_like(tensor) for name, tensor in weights(make()).items()}
    engine = make()
    engine.load_weights(
        lambda targets: [target.detach().copy_(given_weights[name]) for name, target in targets.items()]
    )
    assert all(torch.equal(tensor, given_weights[name]) for name, tensor in weights(engine).items())


def test_8_bits_are_refused_on_a_device_that_cannot_multiply_them(make) -> None:
    with pytest.raises(ValueError, match=r"run\.precision: found fp8 on cpu, expected a GPU of compute capability"):
        make(run={"precision": "fp8"})


def test_a_product_in_8_bits_and_its_gradients_are_near_those_in_fp32() -> None:
    """On a processor, whose arithmetic is the GPU's; 8 bits have 3 (gradients: 2) of mantissa."""
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48), torch.randn(2, 16, 64, requires_grad=True)
    upstream = torch.randn(2, 16, 48)
    exact = torch.autograd.grad(linear(x), (x, linear.weight, linear.bias), upstream)
    out = product(x, linear.weight) + linear.bias.bfloat16()
    gradients = torch.autograd.grad(out, (x, linear.weight, linear.bias), upstream.to(out.dtype))
    for value, expected in zip((out, *gradients), (linear(x), *exact), strict=True):
        assert (value.float() - expected).norm() < 0.1 * expected.norm()

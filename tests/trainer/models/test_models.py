"""What every model keeps to, so that it can be cut into stages, sharded and compiled block by block."""

import numpy as np
import pytest
import torch
from torch import Tensor

from slipway.trainer import models
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.model import Model, Rows
from slipway.trainer.models.resnet import ResNetShape
from slipway.trainer.models.vit import VisionShape
from tests.trainer import recurrent

TEXT, PICTURES = Data(vocabulary=50, length=16), Data(picture=(8, 8, 1), classes=10)
SHAPES: list[Shape] = [
    DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=48),
    DecoderShape(
        layers=2,
        width=32,
        heads=4,
        kv_heads=4,
        hidden=48,
        positions="learned",
        longest=16,
        norm="layer",
        activation="gelu",
        bias="all",
        tied=True,
    ),
    EncoderShape(layers=2, width=32, heads=4, hidden=48),
    ResNetShape(blocks=(1, 1), width=8, stem="small"),
    VisionShape(layers=2, width=32, heads=4, hidden=48, patch=4),
    recurrent.Shape(kind="tests.trainer.recurrent", width=32),
]
KINDS = pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda model_shape: "gpt2" if getattr(model_shape, "tied", False) else model_shape.kind
)


def model_of(shape: Shape) -> Model:
    torch.manual_seed(0)
    return models.build(shape, TEXT if shape.reads == "tokens" else PICTURES)


def inputs_of(model: Model, count: int = 3) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(1)
    rows: Rows = random.integers(0, 50, (count, 17), np.uint16)
    if model.reads == "pictures":
        rows = Labelled(random.integers(0, 256, (count, 8, 8, 1), np.uint8), np.zeros(count, np.uint32))
    return model.prepare(rows, np.arange(count, dtype=np.uint64), torch.device("cpu"))


@KINDS
def test_a_model_is_its_first_part_its_blocks_and_its_last_part(shape: Shape) -> None:
    model = model_of(shape)
    inputs, _ = inputs_of(model)
    assert torch.equal(model.eval()(inputs), model.last(model.through(model.first(inputs))))


@KINDS
def test_first_uses_and_last_uses_name_everything_outside_the_blocks(shape: Shape) -> None:
    model = model_of(shape)
    outside = {name.split(".")[0] for name, _ in model.named_parameters() if not name.startswith("blocks.")}
    assert outside == {*model.first_uses, *model.last_uses}


@KINDS
def test_the_first_and_the_last_stage_need_only_the_parts_that_the_model_names(shape: Shape) -> None:
    whole_model, first, last = (model_of(shape).eval() for _ in range(3))
    inputs, _ = inputs_of(whole_model)
    for name in set(first.last_uses) - set(first.first_uses):
        delattr(first, name)
    for name in set(last.first_uses) - set(last.last_uses):
        delattr(last, name)
    first.blocks, last.blocks = first.blocks[:1], last.blocks[1:]
    assert torch.equal(last.last(last.through(first.through(first.first(inputs)))), whole_model(inputs))


@KINDS
def test_a_micro_batch_may_be_empty(shape: Shape) -> None:
    """A rank whose share is smaller than the others' takes part with none: a loss and gradients of 0."""
    model = model_of(shape).eval()
    inputs, targets = inputs_of(model, 0)
    loss = model.loss(model(inputs), targets)
    torch.autograd.backward(loss)
    assert loss == 0
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


@KINDS
def test_the_weights_follow_from_torchs_seed(shape: Shape) -> None:
    one, other = model_of(shape).state_dict(), model_of(shape).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    torch.manual_seed(1)
    another = models.build(shape, TEXT if shape.reads == "tokens" else PICTURES).state_dict()
    assert any(not torch.equal(one[name], another[name]) for name in one)

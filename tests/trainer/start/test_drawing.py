"""Drawing: a number depends on the seed, the name and the position alone, and only what a rank holds is drawn."""

import numpy as np
import pytest
import torch
from torch import nn

from slipway.trainer import models
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.initial_values import Constant, InitialValues, Normal, Uniform
from slipway.trainer.models.model import Model
from slipway.trainer.models.outline import without_memory
from slipway.trainer.models.resnet import ResNetShape
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.start import drawing
from slipway.trainer.start.divided import Part
from tests.trainer.drawn import drawn

TEXT, PICTURES = Data(vocabulary=64, length=16), Data(picture=(16, 16, 3), classes=10)
DECODER = DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=48)
SHAPES = [
    DECODER,
    EncoderShape(layers=2, width=32, heads=4, hidden=48),
    ResNetShape(blocks=(1, 1), width=8),
    VisionShape(layers=2, width=32, heads=4, hidden=48, patch=4),
]
PARTS = [
    ((300, 1500), (130, 0), (47, 1500)),
    ((300, 1500), (0, 1020), (300, 10)),
    ((300, 1500), (63, 511), (2, 513)),
    ((200_000,), (65_530,), (70_000,)),
    ((70, 6, 5, 5), (69, 0, 0, 0), (1, 6, 5, 5)),
    ((70, 6, 5, 5), (3, 2, 0, 0), (40, 3, 5, 5)),
    ((8, 8), (8, 0), (0, 8)),
]


def values(shape: tuple[int, ...], part: Part | None = None, name: str = "a", seed: int = 0) -> np.ndarray:
    return drawing.values(name, shape, part or Part((0,) * len(shape), shape), Normal(0.02), seed)


@pytest.mark.parametrize(("shape", "offsets", "sizes"), PARTS)
def test_a_part_has_the_numbers_that_the_whole_has_there(
    shape: tuple[int, ...], offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    box = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
    assert np.array_equal(values(shape, Part(offsets, sizes)), values(shape)[box])


def test_numbers_differ_by_seed_name_and_position() -> None:
    numbers = values((300, 1500))
    assert not np.array_equal(numbers, values((300, 1500), name="b"))
    assert not np.array_equal(numbers, values((300, 1500), seed=1))
    assert len(np.unique(numbers)) > 0.9 * numbers.size


def test_numbers_have_the_distribution_of_their_rule() -> None:
    normal, part = values((300, 1500)), Part((0, 0), (300, 1500))
    assert normal.std() == pytest.approx(0.02, rel=0.01) and abs(normal.mean()) < 1e-4
    even = drawing.values("a", (300, 1500), part, Uniform(0.5), 0)
    assert even.std() == pytest.approx(1 / np.sqrt(12), rel=0.01) and -0.5 <= even.min() < even.max() <= 0.5


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.kind)
def test_every_model_says_how_all_that_it_has_begins(shape: Shape) -> None:
    model = drawn(shape, TEXT if shape.reads == "tokens" else PICTURES)
    assert all(tensor.isfinite().all() for tensor in (*model.parameters(), *model.buffers()))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.get_buffer("running_var") == 1).all() and not module.get_buffer("running_mean").any()


def test_buffers_that_no_checkpoint_has_are_there_before_any_weight() -> None:
    with without_memory():
        model = models.build(DECODER, TEXT)
    drawing.allocate(model, model, torch.device("cpu"))
    assert torch.equal(model.get_buffer("rotation"), Decoder(DECODER, TEXT).get_buffer("rotation"))


def test_memory_that_a_checkpoint_will_fill_has_no_values_until_then() -> None:
    """PyTorch fills memory without values with NaN when it is told to be deterministic."""
    torch.use_deterministic_algorithms(True)
    try:
        with without_memory():
            model = models.build(DECODER, TEXT)
        drawing.allocate(model, model, torch.device("cpu"))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(parameter.isnan().all() for parameter in model.parameters())
    assert model.get_buffer("rotation").isfinite().all()


class Tied(nn.Module):
    """Two modules with one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight

    def initial(self, name: str, tensor: torch.Tensor) -> InitialValues:
        return Constant(1.0)


def test_parameters_that_two_modules_share_stay_shared() -> None:
    with without_memory():
        model: Model = Tied()  # type: ignore[assignment]
    drawing.allocate(model, model, torch.device("cpu"))
    assert model.get_parameter("head.weight") is model.get_parameter("embedding.weight")
    assert model.get_parameter("head.weight").device.type == "cpu"

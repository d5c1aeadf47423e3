"""The models of pictures: their arithmetic, their count of operations, and the crops that they draw."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from slipway.trainer import models
from slipway.trainer.config.shapes import Augment, Data, Shape
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.models.classifier import Classifier, cropped
from slipway.trainer.models.model import Model
from slipway.trainer.models.resnet import ResNetShape
from slipway.trainer.models.resnet.network import ResNet
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.models.vit.network import VisionTransformer
from tests.trainer.drawn import drawn

CPU = torch.device("cpu")
DATA = Data(picture=(16, 24, 3), classes=10, seed=3)
VIT = VisionShape(layers=2, width=32, heads=4, hidden=48, patch=4)
SMALL = ResNetShape(blocks=(1, 2), width=8, stem="small")
SHAPES = [VIT, SMALL, ResNetShape(blocks=(2, 1, 1), width=8)]
POSITIONS = np.arange(300, dtype=np.uint64)


def model_of(shape: Shape, data: Data = DATA) -> Model:
    torch.manual_seed(0)
    return models.build(shape, data)


def pictures(count: int = 4) -> Labelled:
    random = np.random.default_rng(1)
    pixels = random.integers(1, 256, (count, *DATA.picture), np.uint8)
    return Labelled(pixels, random.integers(0, 10, count).astype(np.uint32))


@pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda model_shape: f"{model_shape.kind}-{getattr(model_shape, 'stem', '')}"
)
def test_flops_per_sample_are_what_torch_counts(shape: Shape) -> None:
    """Forward and backward of all matrix products and convolutions."""
    model = model_of(shape)
    inputs, targets = model.prepare(pictures(3), POSITIONS[:3], CPU)
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        torch.autograd.backward(model.loss(model(inputs), targets))
    assert counted.get_total_flops() == 3 * model.flops_per_sample


@pytest.mark.parametrize("shape", [VIT, SMALL], ids=lambda model_shape: model_shape.kind)
def test_pictures_of_a_batch_do_not_see_each_other_when_they_are_measured(shape: Shape) -> None:
    model = model_of(shape).eval()
    inputs, _ = model.prepare(pictures(), POSITIONS[:4], CPU)
    torch.testing.assert_close(model(inputs)[1:2], model(inputs[1:2]), rtol=1e-4, atol=1e-5)


def test_a_vision_transformer_distinguishes_positions() -> None:
    """With weights large enough to show it."""
    model = model_of(VIT).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    inputs, _ = model.prepare(pictures(1), POSITIONS[:1], CPU)
    assert not torch.allclose(model(inputs), model(inputs.flip(3)), atol=1e-3)


def test_patches_follow_the_class_token_row_by_row() -> None:
    model = model_of(VIT)
    assert isinstance(model, VisionTransformer)
    inputs, _ = model.prepare(pictures(1), POSITIONS[:1], CPU)
    tokens = (model.first(inputs) - model.positions)[0]
    torch.testing.assert_close(tokens[0], model.token.flatten())
    one = model.patches(inputs[:, :, 4:8, 8:12]).flatten()
    torch.testing.assert_close(tokens[1 + 1 * 6 + 2], one)


def test_a_block_between_equal_sizes_begins_as_the_identity() -> None:
    x = torch.randn(1, 64, 4, 4).relu()
    torch.testing.assert_close(drawn(SMALL, DATA).blocks[2](x), x)


def test_a_model_with_batch_normalisation_declares_that_its_blocks_must_not_run_again() -> None:
    assert not ResNet.recomputes
    assert VisionTransformer.recomputes


def test_a_patch_that_does_not_divide_the_pictures_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a divisor of the pictures' height and width \(16 x 24\)"):
        model_of(VisionShape(layers=2, width=32, heads=4, hidden=48, patch=5))


def classifier(augment: Augment) -> Classifier:
    model = model_of(ResNetShape(blocks=(1,), width=4, stem="small", augment=augment))
    assert isinstance(model, Classifier)
    return model


def inputs_of(model: Model, which: slice = slice(None)) -> Tensor:
    rows = pictures(len(POSITIONS))
    return model.prepare(Labelled(rows.pixels[which], rows.labels[which]), POSITIONS[which], CPU)[0]


def test_pixels_become_numbers_from_minus_one_to_one_by_channel() -> None:
    rows = pictures()
    inputs, targets = classifier("none").prepare(rows, POSITIONS[:4], CPU)
    expected = rows.pixels.transpose(0, 3, 1, 2) / 127.5 - 1
    assert np.allclose(inputs.numpy(), expected, atol=1e-6)
    assert targets.tolist() == rows.labels.tolist()


@pytest.mark.parametrize("augment", ["crop", "crop_flip"])
def test_a_crop_depends_on_the_position_and_the_seed_only(augment: Augment) -> None:
    model = classifier(augment)
    assert torch.equal(inputs_of(model)[5:8], inputs_of(model, slice(5, 8)))
    assert not torch.equal(inputs_of(model)[0], inputs_of(classifier("none"))[0])


def test_pictures_are_not_cropped_in_a_measurement() -> None:
    assert torch.equal(inputs_of(classifier("crop_flip").eval()), inputs_of(classifier("none")))


def test_crops_are_the_picture_moved_by_up_to_an_eighth_with_black_where_it_was_not() -> None:
    """Every offset, and a mirror image at every other."""
    pixels = torch.from_numpy(pictures(1).pixels)
    offsets, flipped = set(), 0
    for top in np.linspace(0, 0.999, 5):
        for left_offset in np.linspace(0, 0.999, 7):
            for mirror in (0.2, 0.7):
                crop = cropped(pixels, torch.tensor([[top, left_offset, mirror]]), flips=True)[0]
                crop, flipped = (crop.flip(1), flipped + 1) if mirror < 0.5 else (crop, flipped)
                offsets |= {offset_of(pixels[0], crop)}
    assert offsets == {(down, right) for down in range(-2, 3) for right in range(-3, 4)}
    assert flipped == 35


def offset_of(picture: Tensor, crop: Tensor) -> tuple[int, int]:
    """By how much `crop` shows the picture moved down and to the right; the rest of it must be black."""
    rows, columns = (crop.sum((1, 2)) > 0).nonzero().flatten(), (crop.sum((0, 2)) > 0).nonzero().flatten()
    height, width, _ = picture.shape
    down = int(rows[0]) if len(rows) < height and rows[0] > 0 else len(rows) - height
    right = int(columns[0]) if len(columns) < width and columns[0] > 0 else len(columns) - width
    overlap = picture[max(0, -down) : height - max(0, down), max(0, -right) : width - max(0, right)]
    assert torch.equal(crop[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], overlap)
    return down, right

"""Tensor parallelism's parts: each gives on two ranks what one process gives, also where nothing divides evenly.

Whole trainings are compared in test_parallel.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from slipway.trainer import models
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.model import NO_TARGET, Model, Rows, Vocabulary
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.node.world import World
from slipway.trainer.start import drawing
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.parallel import eight_bits, tensor
from slipway.trainer.step.parallel.divided_stream import DividedStream
from slipway.trainer.step.parallel.divided_vocabulary import DividedVocabulary
from slipway.trainer.step.parallel.exchanges import Division
from slipway.trainer.step.precision import autocast
from tests.trainer import gang

DECODER = DecoderShape(layers=2, width=64, heads=4, kv_heads=2, hidden=96, tied=True)
VISION = VisionShape(layers=2, width=32, heads=4, hidden=64, patch=4)
TOKENS, PICTURES = Data(vocabulary=65, length=32), Data(picture=(8, 8, 3), classes=10)
KINDS: dict[str, tuple[Shape, Data]] = {"decoder": (DECODER, TOKENS), "vit": (VISION, PICTURES)}


@dataclass(frozen=True)
class StepResult:
    """What a step without an update shows."""

    loss: float
    correct: int
    gradients: dict[str, Tensor]
    logits: tuple[int, ...]


def drawn(kind: str) -> Model:
    model = models.build(*KINDS[kind])
    drawing.draw(model, 7)
    return model


def samples(kind: str) -> Rows:
    random, data = np.random.default_rng(1), KINDS[kind][1]
    if kind == "vit":
        return Labelled(random.integers(0, 256, (3, *data.picture), np.uint8), np.arange(3, dtype=np.uint32))
    return random.integers(0, data.vocabulary, (3, data.length + 1)).astype(np.uint16)


def step(model: Model, kind: str, precision: Any) -> StepResult:
    """Forward and backward of one part."""
    cpu = torch.device("cpu")
    inputs, targets = model.prepare(samples(kind), np.arange(3, dtype=np.uint64), cpu)
    with autocast(precision, cpu):
        logits = model(inputs)
    loss = model.loss(logits, targets)
    torch.autograd.backward(loss)
    tensor.complete_gradients(model)
    gradients = {
        name: full_tensor(parameter.grad) for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return StepResult(
        float(loss.detach()), int(model.correct(logits.detach(), targets)), gradients, tuple(logits.shape)
    )


def full_tensor(part: Tensor) -> Tensor:
    return part.full_tensor() if is_divided(part) else part


def divided_step(world: World, kind: str, precision: Any) -> StepResult:
    model = drawn(kind)
    product = eight_bits.product if precision == "fp8" else F.linear
    tensor.divide(model, init_device_mesh("cpu", (world.size,)), model.stream_length, product)
    return step(model, kind, precision)


def odd_logits() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    targets = torch.randint(0, 65, (2, 7), generator=random)
    targets[0, 2:4] = NO_TARGET
    return 4 * torch.randn(2, 7, 65, generator=random), targets


def scored(vocabulary: Vocabulary, logits: Tensor, targets: Tensor) -> tuple[float, int, Tensor]:
    logits = logits.detach().clone().requires_grad_()
    loss = vocabulary.loss(logits, targets)
    (gradient,) = torch.autograd.grad(2 * loss, logits)
    return float(loss.detach()), int(vocabulary.correct(logits.detach(), targets)), gradient


def scored_by_two(world: World) -> tuple[float, int, Tensor]:
    logits, targets = odd_logits()
    division = Division(init_device_mesh("cpu", (world.size,)).get_group(), 7)
    begin, count = ((0, 33), (33, 32))[world.rank]
    vocabulary = DividedVocabulary(DividedStream(division, frozenset()), begin, count)
    return scored(vocabulary, vocabulary.own(logits), targets)


def on_two_ranks(world: World) -> dict[str, Any]:
    return {
        "decoder": divided_step(world, "decoder", "fp32"),
        "vit": divided_step(world, "vit", "fp32"),
        "fp8": divided_step(world, "decoder", "fp8"),
        "scored": scored_by_two(world),
        "refused": refusal_of_few_tokens(world),
    }


def refusal_of_few_tokens(world: World) -> str:
    model = models.build(DECODER, Data(vocabulary=1, length=8))
    try:
        tensor.divide(model, init_device_mesh("cpu", (world.size,)), model.stream_length, F.linear)
    except ValueError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return gang.run(2, on_two_ranks)


@pytest.mark.parametrize("kind", KINDS)
def test_a_divided_model_has_the_loss_and_the_gradients_of_a_whole_one(ranks: Any, kind: str) -> None:
    """The vocabulary of the tied decoder is 65, and the ViT has 5 positions: two ranks divide neither evenly."""
    alone = step(drawn(kind), kind, "fp32")
    for rank in ranks:
        result: StepResult = rank[kind]
        assert result.loss == pytest.approx(alone.loss, rel=1e-5) and result.correct == alone.correct
        assert result.gradients.keys() == alone.gradients.keys()
        for name, gradient in result.gradients.items():
            torch.testing.assert_close(gradient, alone.gradients[name], rtol=1e-4, atol=1e-5, msg=name)


def test_no_rank_has_the_logits_of_all_tokens(ranks: Any) -> None:
    assert [rank["decoder"].logits for rank in ranks] == [(3, 32, 33), (3, 32, 32)]


def test_divided_matrices_multiply_in_8_bits_about_as_whole_ones_in_fp32(ranks: Any) -> None:
    alone = step(drawn("decoder"), "decoder", "fp32")
    for rank in ranks:
        result: StepResult = rank["fp8"]
        assert result.loss == pytest.approx(alone.loss, rel=0.01) and result.loss != pytest.approx(alone.loss, rel=1e-7)
        for name, gradient in result.gradients.items():
            assert (gradient - alone.gradients[name]).norm() < 0.15 * alone.gradients[name].norm(), name


def test_a_loss_over_divided_logits_is_the_cross_entropy_of_the_targets_that_count(ranks: Any) -> None:
    loss, correct, gradient = scored(Vocabulary(), *odd_logits())
    for rank in ranks:
        assert rank["scored"][0] == pytest.approx(loss, rel=1e-6) and rank["scored"][1] == correct
    torch.testing.assert_close(torch.cat([rank["scored"][2] for rank in ranks], -1), gradient)


def test_more_ranks_than_tokens_are_refused_with_the_numbers(ranks: Any) -> None:
    message = "field layout.tensor: found 2, expected fewer: embedding.weight has 1 rows, one for each token"
    assert [rank["refused"] for rank in ranks] == [message, message]

"""Gradients of a global batch do not show how it was divided: among ranks, or into micro-batches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st
from torch import Tensor

from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Placement
from slipway.trainer.models.model import Data
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine
from tests.trainer.conftest import VOCAB, settings

SEQUENCES, LENGTH = 7, 8
ROWS = np.random.default_rng(1).integers(0, VOCAB, (SEQUENCES, LENGTH + 1)).astype(np.uint16)
NUMBERS = np.arange(SEQUENCES, dtype=np.uint64)
Gradients = dict[str, Tensor]


def gradients(shares: list[tuple[int, int]]) -> tuple[float, Gradients]:
    """The summed loss, and the summed gradients, of consecutive shares: each its samples and its micro-batch.

    Summed over the ranks as DDP does, before its division that `Engine.accumulate` makes up for.
    """
    engine = Engine(CONFIG, World(0, 1, 0, torch.device("cpu")), Data(vocabulary=VOCAB, length=LENGTH))
    start, loss = 0, 0.0
    for samples, micro in shares:
        engine.config = replace(CONFIG, batch=replace(CONFIG.batch, micro=micro))
        loss += engine.accumulate(ROWS[start : start + samples], NUMBERS[start : start + samples]).loss
        start += samples
    assert start == SEQUENCES
    return loss, {name: p.grad for name, p in engine.model.named_parameters() if p.grad is not None}


def _config() -> resolved.Config:
    sections: dict[str, Any] = settings(batch={"sequences": SEQUENCES, "length": LENGTH}, model={"layers": 1})
    built = {name: kind for name, kind in resolved.SECTIONS.items() if name in sections and name != "model"}
    placement = Placement(store="", durable="", nvme="")
    return resolved.Config(
        training="tiny",
        snapshot="0" * 64,
        model=resolved.shape(sections["model"]),
        placement=placement,
        **{name: kind(**sections[name]) for name, kind in built.items()},
    )


CONFIG = _config()


@st.composite
def divisions(draw: st.DrawFn) -> list[tuple[int, int]]:
    """The shares of 1 to all samples that ranks take, and the micro-batch of each."""
    cuts = sorted(draw(st.sets(st.integers(1, SEQUENCES - 1))))
    sizes = np.diff([0, *cuts, SEQUENCES]).tolist()
    return [(size, draw(st.integers(1, size))) for size in sizes]


@pytest.fixture(scope="module")
def undivided() -> tuple[float, Gradients]:
    return gradients([(SEQUENCES, SEQUENCES)])


@bounded(max_examples=10)
@given(shares=divisions())
def test_any_division_of_a_batch_gives_the_same_loss_and_gradients(
    undivided: tuple[float, Gradients], shares: list[tuple[int, int]]
) -> None:
    loss, gradients_in_parts = gradients(shares)
    assert loss == pytest.approx(undivided[0], rel=1e-6)
    torch.testing.assert_close(gradients_in_parts, undivided[1], rtol=1e-4, atol=1e-7)


def test_the_gradients_are_those_of_the_mean_over_all_targets(undivided: tuple[float, Gradients]) -> None:
    engine = Engine(CONFIG, World(0, 1, 0, torch.device("cpu")), Data(vocabulary=VOCAB, length=LENGTH))
    tokens = torch.from_numpy(ROWS.astype(np.int64))
    logits = engine.model(tokens[:, :-1])
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
    expected = {name: p.grad for name, p in engine.model.named_parameters()}
    torch.testing.assert_close(undivided[1], expected, rtol=1e-4, atol=1e-7)

"""Randomness: the draws of a step depend on the seed, the samples and the rank's part of them, on no earlier draw.

So a step that is repeated, after a restart, from an older checkpoint or for want of memory, draws the same numbers.
Ranks that share matrices draw the same numbers: they drop the activations that they all hold alike, and their copies of
the weights stay equal. Shares of a batch, parts of a sequence and stages of a pipeline draw numbers of their own.
"""

import random

import numpy as np
import torch

from slipway.trainer.base import draws


def seed_for_step(seed: int, first_sample: int, part: int) -> None:
    """Seed the generators of torch, CUDA, numpy and Python for a step.

    first_sample: the number in the training's sequence of the first sample of this rank's share; part: the number of
    this rank's part of their activations (`slipway.trainer.config.layout.Mesh.drawing_part`).
    """
    counter = draws.mix(np.array([seed], np.uint64) + draws.GOLDEN) + np.array([first_sample], np.uint64) * draws.GOLDEN
    value = int(draws.mix(draws.mix(counter) + np.array([part], np.uint64) * draws.GOLDEN)[0])
    _seed(value)


def seed_for_model(seed: int) -> None:
    """Seed all generators, in the same way on every rank, before the model draws its weights."""
    _seed(seed)


def _seed(value: int) -> None:
    # torch.manual_seed would take 50 times as long: it queries every kind of device that PyTorch knows.
    torch.default_generator.manual_seed(value % 2**63)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(value % 2**63)
    np.random.seed(value % 2**32)
    random.seed(value)

"""Rotary positions: each pair of a head's features is turned by an angle that grows with the position."""

import math
from typing import Any

import torch
from torch import Tensor

from slipway.trainer.models.decoder import RopeScaling


def rotations(length: int, features: int, base: float, scaling: RopeScaling | None = None) -> Tensor:
    """Cosines and sines of the rotary positions, [length, features / 2, 2] (RoFormer, arXiv:2104.09864)."""
    # On the host also where the model has no memory yet: on the meta device, arange imports PyTorch's compiler.
    exact: Any = {"dtype": torch.float64, "device": "cpu"}
    frequencies = base ** (-torch.arange(0, features, 2, **exact) / features)
    if scaling is not None:
        frequencies = scaled(frequencies, scaling)
    angles = torch.outer(torch.arange(length, **exact), frequencies)
    return torch.stack([angles.cos(), angles.sin()], -1).float()


def scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """The frequencies of Llama 3.1: high ones as they are, low ones divided by the factor, a mixture between them.

    The share of the unscaled frequency in the mixture grows with the turns that a pair makes in the original length
    (`rope_type: llama3` of transformers; arXiv:2407.21783 gives the base alone).
    """
    turns = scaling.original_length * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair (i, i + features / 2) by its position's angle; x: [batch, heads, length, features]."""
    cosine, sine = rotation[..., 0].to(x.dtype), rotation[..., 1].to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, left * sine + right * cosine], -1)

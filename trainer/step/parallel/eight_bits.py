"""Products of matrices in 8 bits: e4m3 for inputs and weights, e5m2 for gradients (arXiv:2209.05433).

Each matrix that a rank multiplies is scaled by its largest magnitude, anew each time. Weights and their gradients stay
in fp32.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway.trainer.models.model import Model
from slipway.trainer.record.causes import UnfitNode
from slipway.trainer.start.divided import is_divided

MULTIPLE = 16
"""Both sizes of a matrix in 8 bits must be a multiple of this."""
LEAST_CAPABILITY = (8, 9)
"""The compute capability of the first GPUs that multiply in 8 bits."""


def check_device(device: torch.device) -> None:
    """Raises UnfitNode for a device that cannot multiply in 8 bits."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        raise UnfitNode(
            f"field run.precision: found fp8 on {device_name}, expected a GPU of compute capability 8.9 or more"
        )


def multiply(model: Model) -> None:
    """Make the undivided matrices of the model's blocks multiply in 8 bits, in place."""
    for block in model.blocks:
        for module in block.modules():
            if isinstance(module, nn.Linear) and not is_divided(module.weight):
                module.forward = functools.partial(_linear, module)  # type: ignore[method-assign]


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., in] times weight [out, in] transposed, in bf16: [..., out]. Sizes that do not fit stay in 16 bits.

    Ranks that divide a matrix each scale their own part of it and of its input. So no scale travels, and each is at
    least as fine as one scale of the whole matrix.
    """
    rows = x.flatten(0, -2)
    if any(size % MULTIPLE for size in (len(rows), *weight.shape)):
        return F.linear(x, weight)
    out: Tensor = _Product.apply(rows.bfloat16(), weight)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


def _linear(linear: nn.Linear, x: Tensor) -> Tensor:
    out = product(x, linear.weight)
    return out if linear.bias is None else out + linear.bias.to(out.dtype)


class _Product(torch.autograd.Function):
    """x [rows, in] times weight [out, in] transposed."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        small_x, scale_x = _small(x, torch.float8_e4m3fn)
        small_weight, scale_weight = _small(weight, torch.float8_e4m3fn)
        context.save_for_backward(small_x, scale_x, small_weight, scale_weight)
        return _multiplied(small_x, scale_x, small_weight, scale_weight, torch.bfloat16)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, scale_x, weight, scale_weight = context.saved_tensors
        small, scale = _small(gradient, torch.float8_e5m2)
        for_x = _multiplied(small, scale, weight.t().contiguous(), scale_weight, torch.bfloat16)
        for_weight = _multiplied(small.t().contiguous(), scale, x.t().contiguous(), scale_x, torch.float32)
        return for_x, for_weight


def _small(values: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """The values in 8 bits, and the scalar in fp32 that restores their size."""
    largest = values.detach().abs().amax().float().clamp(min=1e-12)
    scale = largest / torch.finfo(kind).max
    return (values / scale).to(kind), scale


def _multiplied(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: torch.dtype) -> Tensor:
    """`a` [m, k] times `b` [n, k] transposed."""
    return torch._scaled_mm(a, b.t(), a_scale, b_scale, out_dtype=out)

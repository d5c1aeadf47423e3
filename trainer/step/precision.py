"""Precision: the type that a model computes in, and the loss scale for fp16's small range.

Weights, and sums of gradients, are fp32 in every precision.
"""

import contextlib
from dataclasses import dataclass

import torch

from slipway.trainer.config.sections import Precision

FIRST_SCALE = 2.0**16
LEAST_SCALE = 1.0
GROWTH_STEPS = 2000


def compute_type(precision: Precision) -> torch.dtype | None:
    """The type in which autocast multiplies matrices; None for the type of the weights."""
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}[precision]


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context of a forward pass."""
    narrow = compute_type(precision)
    return torch.autocast(device.type, narrow) if narrow else contextlib.nullcontext()


@dataclass
class LossScale:
    """Dynamic loss scaling: a step that overflows halves it, 2000 steps without overflow double it (as GradScaler).

    The norm of the whole gradient shows an overflow on any rank, so all ranks decide alike, whatever part they have.
    """

    value: float = FIRST_SCALE
    steps: int = 0
    """Steps in a row without an overflow."""

    def accepts(self, finite: bool) -> bool:
        """Adapt the scale to a step whose gradient norm is `finite` or not; returns whether to use its gradients.

        An infinite norm at the smallest scale is no overflow: the model diverges, and the caller must see that.
        """
        if not finite and self.value > LEAST_SCALE:
            self.value = max(LEAST_SCALE, self.value / 2)
            self.steps = 0
            return False
        self.steps += 1
        if self.steps == GROWTH_STEPS:
            self.value = self.value * 2
            self.steps = 0
        return True

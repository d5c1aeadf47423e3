"""Initial values: rules for the initial values of a model's parameters and buffers.

A model has a rule for each name (`slipway.trainer.models.model.Model.initial`). A rule is a plain value, so a rank can
draw its own part of a tensor and nothing else (`slipway.trainer.start.drawing`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Normal:
    """Drawn from a normal distribution around 0."""

    deviation: float


@dataclass(frozen=True)
class Uniform:
    """Drawn uniformly between -bound and bound."""

    bound: float


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float


@dataclass(frozen=True)
class Computed:
    """The whole tensor, which `function` returns; for small tensors, because each rank computes all of it."""

    function: Callable[[], Tensor]


InitialValues = Normal | Uniform | Constant | Computed

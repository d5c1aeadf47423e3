"""Initial values: the rule by which a parameter or a buffer of a model gets the values that it begins with.

A model gives a rule for each name (`slipway.trainer.models.model.Model.initial`). The rule is a plain value, so that a
rank can draw its own part of a tensor and nothing else (`slipway.trainer.start.drawing`).
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
    """Drawn evenly between -bound and bound."""

    bound: float


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float


@dataclass(frozen=True)
class Computed:
    """The whole tensor as a function returns it; for small tensors, as each rank computes all of it."""

    function: Callable[[], Tensor]


InitialValues = Normal | Uniform | Constant | Computed

"""The state between two steps, which must not be lost when a step is done again, in the same memory or a new layout.

A step changes the weights only at its end, but the running statistics of batch normalisation in every forward pass.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from slipway.trainer.start.divided import is_divided


class RunningStatistics:
    """The saved buffers of a model, and their values at the beginning of a step. Models without any cost nothing."""

    def __init__(self, model: nn.Module) -> None:
        saved = model.state_dict().keys()
        self._names = [name for name, _ in model.named_buffers() if name in saved]
        self._now = self._of(model)
        self._before = [buffer.clone() for buffer in self._now]

    @torch.no_grad()
    def remember(self) -> None:
        """The values are those that the step begins with."""
        for before, now in zip(self._before, self._now, strict=True):
            before.copy_(now)

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Give `model`, the same one or one that takes its place, the remembered values."""
        self._now = self._of(model)
        for before, now in zip(self._before, self._now, strict=True):
            now.copy_(before)

    @property
    def remembered(self) -> dict[str, Tensor]:
        """The remembered values, by the names of the buffers."""
        return dict(zip(self._names, self._before, strict=True))

    @torch.no_grad()
    def give(self, model: nn.Module, values: Mapping[str, Tensor]) -> None:
        """Give `model` these values, and remember them."""
        for name, before in zip(self._names, self._before, strict=True):
            before.copy_(values[name])
        self.restore(model)

    def _of(self, model: nn.Module) -> list[Tensor]:
        buffers = dict(model.named_buffers())
        return [buffers[name] for name in self._names]


class StepMark:
    """Whether the weights, and all that belongs to them, are those between two steps; and which values are, if not."""

    def __init__(self) -> None:
        self.begun, self.halfway = False, False
        """A step has begun, and weights are as before; its update has begun."""
        self.extra: dict[str, Any] = {}
        """The engine's extra state as it was when the step began."""
        self.carried_state: CarriedState | None = None
        """The state while the model is laid out anew."""

    def begin(self, extra: dict[str, Any]) -> None:
        """A step begins, maybe once more."""
        self.begun, self.extra = True, extra

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """The update, which ends the step."""
        self.halfway = True
        yield
        self.begun = self.halfway = False


@dataclass(frozen=True)
class CarriedState:
    """This rank's part of the state between two steps; the values of a weight by the name of its parameter."""

    weights: dict[str, Tensor]
    moments: dict[str, dict[str, Any]]
    """The optimiser's state: DTensors where the parameter is one."""
    statistics: dict[str, Tensor]
    extra: dict[str, Any]
    """See `Engine.extra_state`."""


def take(
    parameters: Mapping[str, nn.Parameter],
    optimiser: Optimizer,
    statistics: RunningStatistics,
    extra: dict[str, Any],
) -> CarriedState:
    """The state of a model with these parameters and remembered statistics; no tensor is copied.

    The parameters are those that the optimiser has: in the middle of a pass, a model whose weights are divided has
    others, which it gathered.
    """
    weights = {name: local(parameter).detach() for name, parameter in parameters.items()}
    moments = {name: dict(optimiser.state.get(parameter, {})) for name, parameter in parameters.items()}
    return CarriedState(weights, moments, statistics.remembered, extra)


@torch.no_grad()
def give(model: nn.Module, optimiser: Optimizer, state: CarriedState) -> None:
    """Continue with `state` in a model of the same layout; each weight is freed as soon as it is copied."""
    for name, parameter in model.named_parameters():
        local(parameter).copy_(state.weights.pop(name))
        if moments := state.moments.pop(name):
            optimiser.state[parameter] = {key: _laid_as(parameter, value) for key, value in moments.items()}


def reserve(parameters: Iterable[nn.Parameter], optimiser: Optimizer, copies: int) -> list[Tensor]:
    """Memory for the optimiser's state that its first update will make: as many `copies` of each trained parameter."""
    new = (parameter for parameter in parameters if parameter.requires_grad and parameter not in optimiser.state)
    return [torch.empty_like(local(parameter)) for parameter in new for _ in range(copies)]


def divided_as(parameter: Tensor, part: Tensor) -> Tensor:
    """This rank's `part` of a tensor that is divided as `parameter` is."""
    from torch.distributed.tensor import DTensor

    assert is_divided(parameter)
    mesh, placements = parameter.device_mesh, parameter.placements
    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride)


def _laid_as(parameter: nn.Parameter, value: Any) -> Any:
    """A part of the optimiser's state with the device mesh of `parameter`, which has other process groups now."""
    if not is_divided(value) or not is_divided(parameter):
        return value
    from torch.distributed.tensor import DTensor

    part, mesh = value.to_local(), parameter.device_mesh
    return DTensor.from_local(part, mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride())


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that may be divided."""
    return tensor.to_local() if is_divided(tensor) else tensor

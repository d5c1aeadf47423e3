"""The state between two steps: a step that is repeated, in the same layout or a new one, must begin from it.

A step changes the weights only at its end, but every forward pass changes the running statistics of batch
normalisation. So these are remembered at the beginning of a step.
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
    """The saved buffers of a model, and their values at the beginning of a step."""

    def __init__(self, model: nn.Module) -> None:
        saved = model.state_dict().keys()
        self._names = [name for name, _ in model.named_buffers() if name in saved]
        self._now = self._of(model)
        self._before = [buffer.clone() for buffer in self._now]

    @torch.no_grad()
    def remember(self) -> None:
        """Remember the present values as the beginning of a step."""
        for before, now in zip(self._before, self._now, strict=True):
            before.copy_(now)

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Set the buffers of `model`, the same one or its replacement, to the remembered values."""
        self._now = self._of(model)
        for before, now in zip(self._before, self._now, strict=True):
            now.copy_(before)

    @property
    def remembered(self) -> dict[str, Tensor]:
        """The remembered values, by the names of the buffers."""
        return dict(zip(self._names, self._before, strict=True))

    @torch.no_grad()
    def give(self, model: nn.Module, values: Mapping[str, Tensor]) -> None:
        """Set the buffers of `model` to these values, and remember them."""
        for name, before in zip(self._names, self._before, strict=True):
            before.copy_(values[name])
        self.restore(model)

    def _of(self, model: nn.Module) -> list[Tensor]:
        buffers = dict(model.named_buffers())
        return [buffers[name] for name in self._names]


class StepMark:
    """How far the current step is: whether weights, optimiser and extra state are still those between two steps."""

    def __init__(self) -> None:
        self.begun = False
        """A step has begun; the weights are still those before it."""
        self.halfway = False
        """The update has begun, so that the weights are in no consistent state."""
        self.extra: dict[str, Any] = {}
        """The engine's extra state as it was when the step began."""
        self.carried_state: CarriedState | None = None
        """The whole state, while the model is laid out anew."""

    def begin(self, extra: dict[str, Any]) -> None:
        """A step begins, for the first time or again."""
        self.begun = True
        self.extra = extra

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """The update, which ends the step."""
        self.halfway = True
        yield
        self.begun = self.halfway = False


@dataclass(frozen=True)
class CarriedState:
    """This rank's part of the state between two steps, by the names of the parameters."""

    weights: dict[str, Tensor]
    moments: dict[str, dict[str, Any]]
    """The optimiser's state; DTensors for parameters that are DTensors."""
    statistics: dict[str, Tensor]
    extra: dict[str, Any]
    """See `Engine.extra_state`."""


def take(
    parameters: Mapping[str, nn.Parameter],
    optimizer: Optimizer,
    statistics: RunningStatistics,
    extra: dict[str, Any],
) -> CarriedState:
    """The state of a model with these parameters and remembered statistics; it copies no tensor.

    The parameters must be the optimiser's: in the middle of a pass, a model with divided weights has others, which it
    has gathered.
    """
    weights = {name: local(parameter).detach() for name, parameter in parameters.items()}
    moments = {name: dict(optimizer.state.get(parameter, {})) for name, parameter in parameters.items()}
    return CarriedState(weights, moments, statistics.remembered, extra)


@torch.no_grad()
def give(model: nn.Module, optimizer: Optimizer, state: CarriedState) -> None:
    """Continue with `state` in a model of the same layout; each weight is freed as soon as it is copied."""
    for name, parameter in model.named_parameters():
        local(parameter).copy_(state.weights.pop(name))
        moments = state.moments.pop(name)
        if moments:
            optimizer.state[parameter] = {key: _laid_as(parameter, value) for key, value in moments.items()}


def reserve(parameters: Iterable[nn.Parameter], optimizer: Optimizer, copies: int) -> list[Tensor]:
    """Memory for the state that the optimiser's first update will allocate: `copies` of each trained parameter."""
    new = (parameter for parameter in parameters if parameter.requires_grad and parameter not in optimizer.state)
    return [torch.empty_like(local(parameter)) for parameter in new for _ in range(copies)]


def divided_as(parameter: Tensor, part: Tensor) -> Tensor:
    """This rank's `part` of a tensor that is divided as `parameter` is."""
    from torch.distributed.tensor import DTensor

    assert is_divided(parameter)
    mesh = parameter.device_mesh
    placements = parameter.placements
    shape = parameter.shape
    stride = parameter.stride()
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride)


def _laid_as(parameter: nn.Parameter, value: Any) -> Any:
    """A part of the optimiser's state on the device mesh of `parameter`, whose process groups are new."""
    if not is_divided(value) or not is_divided(parameter):
        return value
    from torch.distributed.tensor import DTensor

    part = value.to_local()
    mesh = parameter.device_mesh
    return DTensor.from_local(part, mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride())


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that may be divided."""
    return tensor.to_local() if is_divided(tensor) else tensor

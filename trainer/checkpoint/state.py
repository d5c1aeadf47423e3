"""What of a training is in a checkpoint: weights and buffers, the optimiser's state, and what else the engine keeps.

Everything has a name that does not depend on the layout: ``model/<name>``, ``optimiser/<parameter>/<key>`` and
``extra/<key>``. Tensors go into safetensors and the rest into JSON, so that nothing is ever unpickled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.checkpoint.contents import Contents

Nested = dict[str, Any]
"""Dictionaries of dictionaries, tensors and JSON values."""


class Stateful(Protocol):
    """Whose state is kept: an engine, or whatever stands for one."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def optimiser(self) -> torch.optim.Optimizer: ...

    def extra_state(self) -> Nested:
        """What else decides the next step; its tensors say which ones to load, and how they are laid out."""

    def load_extra_state(self, state: Nested) -> None:
        """Go on from an earlier `extra_state`; what its checkpoint had no value for is missing."""


@dataclass(frozen=True)
class State:
    """What one rank holds of it."""

    tensors: Mapping[str, Tensor]
    """The live ones, by name; plain tensors are the same on every rank that has them, DTensors are its part."""
    values: Mapping[str, Any]
    """What is not a tensor, as JSON."""
    frozen: frozenset[str]
    """The names of parameters that do not train."""


def collect(engine: Stateful) -> State:
    """The state as it is now; copies nothing."""
    tensors: dict[str, Tensor] = {f"model/{name}": value for name, value in engine.model.state_dict().items()}
    values: dict[str, Any] = {}
    for name, parameter in engine.model.named_parameters():
        kept = engine.optimiser.state.get(parameter, {})
        _sort(f"optimiser/{name}", kept, tensors, values)
    _sort("extra", engine.extra_state(), tensors, values)
    frozen = frozenset(f"model/{name}" for name, p in engine.model.named_parameters() if not p.requires_grad)
    return State(tensors, values, frozen)


def load(engine: Stateful, contents: Contents) -> None:
    """Put a checkpoint's state into `engine`, whatever layout either has. Raises ValueError for another model's."""
    values = contents.progress().values
    targets: dict[str, Tensor] = {f"model/{name}": value for name, value in engine.model.state_dict().items()}
    moments = {
        name: _moments(contents, name, parameter, engine.optimiser)
        for name, parameter in engine.model.named_parameters()
        if parameter.requires_grad
    }
    for name, found in moments.items():
        targets |= {f"optimiser/{name}/{key}": value for key, value in found.items()}
    extra: dict[str, Tensor] = {}
    _sort("extra", engine.extra_state(), extra, {})
    extra = {name: value for name, value in extra.items() if name in contents.manifest.tensors}
    contents.load(targets | extra)
    for name, parameter in engine.model.named_parameters():
        found = _nested(
            f"optimiser/{name}/", {**{f"optimiser/{name}/{k}": v for k, v in moments.get(name, {}).items()}, **values}
        )
        if found:
            engine.optimiser.state[parameter] = found
    engine.load_extra_state(_nested("extra/", {**extra, **values}))


def _moments(contents: Contents, name: str, parameter: Tensor, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Room for what the checkpoint has of a parameter's optimiser state: laid out as the parameter where it has its
    shape; else whole, and on the host where the optimiser counts its steps there.
    """
    prefix = f"optimiser/{name}/"
    found: dict[str, Tensor] = {}
    for key in contents.names(prefix):
        entry = contents.described(key)
        if entry.shape == parameter.shape and entry.shape:
            found[key.removeprefix(prefix)] = torch.empty_like(parameter, dtype=entry.dtype, requires_grad=False)
        else:
            device = torch.device("cpu") if _counts_on_host(optimiser, parameter) else parameter.device
            found[key.removeprefix(prefix)] = torch.empty(entry.shape, dtype=entry.dtype, device=device)
    return found


def _counts_on_host(optimiser: torch.optim.Optimizer, parameter: Tensor) -> bool:
    """PyTorch keeps a parameter's count of steps on the host unless the update is fused or capturable."""
    group = next(group for group in optimiser.param_groups if any(p is parameter for p in group["params"]))
    return not (group.get("fused") or group.get("capturable"))


def _sort(prefix: str, value: Any, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Put the leaves of a nested value where they belong, by the path to each."""
    for name, leaf in _leaves(prefix, value):
        if isinstance(leaf, Tensor):
            tensors[name] = leaf
        else:
            values[name] = leaf


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _leaves(f"{prefix}/{key}", below)
    else:
        yield prefix, value


def _nested(prefix: str, flat: Mapping[str, Any]) -> Nested:
    """The nested value whose leaves `flat` names under `prefix`."""
    out: Nested = {}
    for name, leaf in flat.items():
        if name.startswith(prefix):
            *path, last = name.removeprefix(prefix).split("/")
            inner = out
            for key in path:
                inner = inner.setdefault(key, {})
            inner[last] = leaf
    return out

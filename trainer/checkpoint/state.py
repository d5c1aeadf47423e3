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

    def own_state(self) -> dict[str, Tensor]:
        """What else decides the next step and is another on each rank, by name."""

    def load_own_state(self, state: dict[str, Tensor]) -> None:
        """Go on from an earlier `own_state`, maybe of another rank; after all else is loaded."""


@dataclass(frozen=True)
class State:
    """What one rank holds of it."""

    tensors: Mapping[str, Tensor]
    """The live ones, by name; plain tensors are the same on every rank that has them, DTensors are its part."""
    values: Mapping[str, Any]
    """What is not a tensor, as JSON."""
    frozen: frozenset[str]
    """The names of parameters that do not train."""


def collect(engine: Stateful, rank: int) -> State:
    """The state as it is now; copies nothing."""
    tensors: dict[str, Tensor] = {f"model/{name}": value for name, value in engine.model.state_dict().items()}
    values: dict[str, Any] = {}
    for name, parameter in engine.model.named_parameters():
        kept = engine.optimiser.state.get(parameter, {})
        _sort(f"optimiser/{name}", kept, tensors, values)
    _sort("extra", engine.extra_state(), tensors, values)
    tensors |= {f"ranks/{rank}/{name}": tensor for name, tensor in engine.own_state().items()}
    frozen = frozenset(f"model/{name}" for name, p in engine.model.named_parameters() if not p.requires_grad)
    return State(tensors, values, frozen)


def load(engine: Stateful, contents: Contents, rank: int) -> None:
    """Put a checkpoint's state into `engine`, whatever layout either has. Raises ValueError for another model's.

    What was another on each rank goes to the rank of that number; a rank more than there were takes what one of those
    had.
    """
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
    own = _own(contents, rank)
    contents.load(targets | extra | own)
    for name, parameter in engine.model.named_parameters():
        found = _nested(
            f"optimiser/{name}/", {**{f"optimiser/{name}/{k}": v for k, v in moments.get(name, {}).items()}, **values}
        )
        if found:
            engine.optimiser.state[parameter] = found
    engine.load_extra_state(_nested("extra/", {**extra, **values}))
    engine.load_own_state({name.split("/", 2)[2]: tensor for name, tensor in own.items()})


def _own(contents: Contents, rank: int) -> dict[str, Tensor]:
    """Room for what `rank` goes on with of the tensors that are another on each rank."""
    names = contents.names("ranks/")
    ranks = len({name.split("/")[1] for name in names})
    mine = [name for name in names if name.split("/")[1] == str(rank % ranks)]
    described = {name: contents.described(name) for name in mine}
    return {name: torch.empty(each.shape, dtype=each.dtype) for name, each in described.items()}


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

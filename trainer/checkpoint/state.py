"""The state of a training in a checkpoint: weights and buffers, the optimiser's state, and the engine's further state.

Every part has a name that does not depend on the layout: ``model/<name>``, ``optimizer/<parameter>/<key>`` and
``extra/<key>``. Tensors are stored as safetensors and all other values as JSON, so that nothing is ever unpickled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from slipway.trainer.checkpoint.disk.contents import Contents

Nested = dict[str, Any]
"""Dictionaries of dictionaries, tensors and JSON values."""


class Stateful(Protocol):
    """An engine whose state a checkpoint holds."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def extra_state(self) -> Nested:
        """Further state on which the next step depends; a load writes into its tensors, in their layout."""

    def load_extra_state(self, state: Nested) -> None:
        """Continue from an earlier `extra_state`, without values that the checkpoint does not have."""

    def own_state(self) -> dict[str, Tensor]:
        """Further tensors, by name, on which the next step depends; each rank has its own."""

    def load_own_state(self, state: dict[str, Tensor]) -> None:
        """Continue from an earlier `own_state`, perhaps of another rank; called after all other state is loaded."""


@dataclass(frozen=True)
class TrainingState:
    """One rank's part of the state."""

    tensors: Mapping[str, Tensor]
    """By name: a plain tensor is equal on all ranks that have it; a DTensor holds this rank's part."""
    values: Mapping[str, Any]
    """All values that are not tensors, as JSON."""
    frozen: frozenset[str]
    """The names of parameters that are not trained."""


def collect(engine: Stateful, rank: int) -> TrainingState:
    """The present state; it copies no tensor."""
    tensors: dict[str, Tensor] = {f"model/{name}": value for name, value in engine.model.state_dict().items()}
    values: dict[str, Any] = {}
    for name, parameter in engine.model.named_parameters():
        moments = engine.optimizer.state.get(parameter, {})
        _add_leaves(f"optimizer/{name}", moments, tensors, values)
    _add_leaves("extra", engine.extra_state(), tensors, values)
    tensors |= {f"ranks/{rank}/{name}": tensor for name, tensor in engine.own_state().items()}
    frozen = frozenset(f"model/{name}" for name, p in engine.model.named_parameters() if not p.requires_grad)
    return TrainingState(tensors, values, frozen)


@dataclass(frozen=True)
class LoadTargets:
    """The tensors into which a checkpoint is read, by name."""

    model: Mapping[str, Tensor]
    moments: Mapping[str, Mapping[str, Tensor]]
    """The optimiser's state, by parameter and key."""
    extra: Mapping[str, Tensor]
    own: Mapping[str, Tensor]
    """State that differs on each rank."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All targets, by their names in the checkpoint."""
        moments = {
            f"optimizer/{name}/{key}": tensor
            for name, parameter_state in self.moments.items()
            for key, tensor in parameter_state.items()
        }
        return {**self.model, **moments, **self.extra, **self.own}


def load(engine: Stateful, contents: Contents, rank: int, size: int = 1) -> None:
    """Load a checkpoint into `engine`; their layouts may differ. Raises ValueError for a checkpoint of another model.

    State that differs on each rank goes to the rank of the same number. If there are more ranks than before, each
    further rank takes the state of one of the former ranks.
    """
    values = contents.progress().values
    targets = _targets(engine, contents, rank)
    contents.load(targets.tensors, rank / size)
    for name, parameter in engine.model.named_parameters():
        loaded_moments = {f"optimizer/{name}/{key}": value for key, value in targets.moments.get(name, {}).items()}
        moments = _nested(f"optimizer/{name}/", {**loaded_moments, **values})
        if moments:
            engine.optimizer.state[parameter] = moments
    engine.load_extra_state(_nested("extra/", {**targets.extra, **values}))
    engine.load_own_state({name.split("/", 2)[2]: tensor for name, tensor in targets.own.items()})


def files_to_load(engine: Stateful, rank: int, size: int, contents: Contents) -> set[str]:
    """The names of the files that `load` reads. Raises as `load`."""
    return contents.files_for(_targets(engine, contents, rank).tensors, rank / size)


def _targets(engine: Stateful, contents: Contents, rank: int) -> LoadTargets:
    model = {f"model/{name}": value for name, value in engine.model.state_dict().items()}
    moments = {
        name: _optimizer_targets(contents, name, parameter, engine.optimizer)
        for name, parameter in engine.model.named_parameters()
        if parameter.requires_grad
    }
    extra: dict[str, Tensor] = {}
    _add_leaves("extra", engine.extra_state(), extra, {})
    known = set(contents.tensor_names("extra/"))
    extra = {name: value for name, value in extra.items() if name in known}
    return LoadTargets(model, moments, extra, _own_targets(contents, rank))


def _own_targets(contents: Contents, rank: int) -> dict[str, Tensor]:
    """Empty tensors for the own state of `rank`."""
    names = contents.tensor_names("ranks/")
    ranks = len({name.split("/")[1] for name in names})
    own_names = [name for name in names if name.split("/")[1] == str(rank % ranks)]
    described = {name: contents.tensor_type(name) for name in own_names}
    return {name: torch.empty(tensor_type.shape, dtype=tensor_type.dtype) for name, tensor_type in described.items()}


def _optimizer_targets(
    contents: Contents, name: str, parameter: Tensor, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Empty tensors for a parameter's optimiser state in the checkpoint.

    A tensor with the parameter's shape has the parameter's layout. Any other tensor is whole, and in host memory if the
    optimiser counts its steps there.
    """
    prefix = f"optimizer/{name}/"
    targets: dict[str, Tensor] = {}
    for key in contents.tensor_names(prefix):
        entry = contents.tensor_type(key)
        if entry.shape == parameter.shape and entry.shape:
            targets[key.removeprefix(prefix)] = torch.empty_like(parameter, dtype=entry.dtype, requires_grad=False)
        else:
            device = torch.device("cpu") if _counts_on_host(optimizer, parameter) else parameter.device
            targets[key.removeprefix(prefix)] = torch.empty(entry.shape, dtype=entry.dtype, device=device)
    return targets


def _counts_on_host(optimizer: torch.optim.Optimizer, parameter: Tensor) -> bool:
    """Whether a parameter's count of steps is on the host: so it is unless the update is fused or capturable."""
    group = next(group for group in optimizer.param_groups if any(p is parameter for p in group["params"]))
    return not (group.get("fused") or group.get("capturable"))


def _add_leaves(prefix: str, value: Any, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Add the leaves of a nested value to `tensors` or `values`, by the path to each."""
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
    """The nested value whose leaves are in `flat` under `prefix`."""
    out: Nested = {}
    for name, leaf in flat.items():
        if name.startswith(prefix):
            *path, last = name.removeprefix(prefix).split("/")
            inner = out
            for key in path:
                inner = inner.setdefault(key, {})
            inner[last] = leaf
    return out

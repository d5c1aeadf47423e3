"""What a checkpoint holds for exact continuation: weights, optimiser, random states, position, history.

Tensors go into safetensors and the rest into JSON, so that nothing in a checkpoint is ever unpickled.
"""

import base64
import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from trainer import atomic
from trainer.checkpoint.format import MODEL, OPTIMISER, OWN, PROGRESS


@dataclass(frozen=True)
class Progress:
    """All that is not a tensor of the model or the optimiser."""

    step: int
    """Steps done; the learning rate is a function of it."""
    samples: int
    """Samples consumed: the whole of the data position."""
    epoch: int
    random_states: list[dict[str, Any]]
    """One a rank."""
    metrics: dict[str, float]
    best: dict[str, float]
    """The lowest validation loss so far and its step; empty before the first validation."""
    config: dict[str, Any]
    lineage: dict[str, Any]
    at: float


def pack(model: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress) -> dict[str, bytes]:
    """The files of a checkpoint. Copies tensors to the host."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    moments = {
        f"{name}/{key}": torch.as_tensor(value).detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimiser.state[parameter].items()
    }
    return {
        MODEL: safetensors.torch.save(weights),
        OPTIMISER: safetensors.torch.save(moments),
        PROGRESS: atomic.readable_json(asdict(progress)),
    }


def pack_own(states: list[dict[str, Tensor]]) -> dict[str, bytes]:
    """The file of what only one rank has, by rank; none where no rank has such a thing."""
    tensors = {
        f"{rank}/{name}": tensor.detach().cpu().contiguous()
        for rank, state in enumerate(states)
        for name, tensor in state.items()
    }
    return {OWN: safetensors.torch.save(tensors)} if tensors else {}


def read_own(files: Mapping[str, bytes], rank: int) -> dict[str, Tensor]:
    """What `rank` goes on with of a checkpoint; a rank more than there were takes what one of those had."""
    if OWN not in files:
        return {}
    tensors = safetensors.torch.load(files[OWN])
    ranks = len({name.partition("/")[0] for name in tensors})
    prefix = f"{rank % ranks}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def load_model(files: Mapping[str, bytes], model: nn.Module) -> None:
    """Put a checkpoint's weights into `model`."""
    model.load_state_dict(safetensors.torch.load(files[MODEL]))


def load_optimiser(files: Mapping[str, bytes], model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Put a checkpoint's optimiser state into `optimiser`, on the parameters' devices."""
    moments = safetensors.torch.load(files[OPTIMISER])
    for name, parameter in model.named_parameters():
        prefix = f"{name}/"
        found = {key.removeprefix(prefix): value for key, value in moments.items() if key.startswith(prefix)}
        optimiser.state[parameter] = {key: value.to(parameter.device) for key, value in found.items()}


def read_progress(files: Mapping[str, bytes]) -> Progress:
    return Progress(**json.loads(files[PROGRESS]))


def random_state() -> dict[str, Any]:
    """This process's random generators: torch, CUDA, numpy and Python."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": _to_text(torch.get_rng_state()),
        "cuda": _to_text(torch.cuda.get_rng_state()) if torch.cuda.is_available() else None,
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
        "python": list(random.getstate()),
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Continue the random generators where `random_state` left them."""
    torch.set_rng_state(_from_text(state["torch"]))
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(_from_text(state["cuda"]))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


def _to_text(tensor: Tensor) -> str:
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def _from_text(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)

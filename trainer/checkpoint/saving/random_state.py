"""The state of this process's random generators (torch, CUDA, numpy and Python) as JSON."""

import base64
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def take() -> dict[str, Any]:
    """The state of every generator."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": _to_text(torch.get_rng_state()),
        "cuda": _to_text(torch.cuda.get_rng_state()) if torch.cuda.is_available() else None,
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
        "python": list(random.getstate()),
    }


def restore(state: Mapping[str, Any]) -> None:
    """Set every generator to a state that `take` returned."""
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

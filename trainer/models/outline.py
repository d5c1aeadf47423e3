"""Outlines: models on PyTorch's meta device, whose tensors have a shape but neither memory nor values."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DRAWS = {
    getattr(Tensor, name)
    for name in ("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_")
}


class _NothingDrawn(TorchFunctionMode):
    """Skips the drawing of weights in the constructors of torch's modules.

    On the meta device nothing is drawn anyway, but PyTorch would import its compiler for it: 1.5 s of CPU.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func in DRAWS or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else options["tensor"]
        return func(*args, **options)


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """The context in which a constructor makes an outline."""
    with torch.device("meta"), _NothingDrawn():
        yield

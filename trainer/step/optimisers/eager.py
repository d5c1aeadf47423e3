"""PyTorch's optimisers without its compiler: the same numbers, and 1.3 s of CPU less for each process.

PyTorch wraps methods of its optimisers for torch.compile. The wrappers import torch._dynamo as soon as an optimiser is
built or takes a step, even where nothing is compiled. The trainer compiles blocks of a model (`layout.compile`) and
never an optimiser, so the methods beneath the wrappers are taken here. `inspect.unwrap` finds them; where a
version of torch does not wrap a method, it returns the method itself.
"""

import inspect
from collections.abc import Callable

import torch
from torch.optim import Optimizer


class EagerOptimizer(Optimizer):
    """An optimiser whose methods do not import the compiler; a subclass has a `step` of its own."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


def _eager(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """`kind`, with a step that does not import the compiler either. The wrapper of `step` also turns gradients off."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (EagerOptimizer, kind), {"step": step})


AdamW = _eager(torch.optim.AdamW)
Adam = _eager(torch.optim.Adam)
SGD = _eager(torch.optim.SGD)

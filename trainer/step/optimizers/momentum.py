"""AdamW, Adam and SGD: PyTorch's own, with fused updates, and without the import of its compiler.

PyTorch wraps methods of its optimisers for torch.compile. The wrappers import torch._dynamo as soon as an optimiser is
built or takes a step, even if nothing is compiled. The trainer compiles blocks of a model (`layout.compile`) and never
an optimiser, so it uses the methods beneath the wrappers: the numbers are the same, and each process needs 1.3 s of CPU
less. `inspect.unwrap` returns a method that is not wrapped as it is.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from slipway.trainer.config.sections import OptimizerConfig


def adamw(model: nn.Module, config: OptimizerConfig, _: ProcessGroup | None = None) -> Optimizer:
    """AdamW for all trained parameters; weight decay is decoupled (arXiv:1711.05101)."""
    return adamw_for(model.parameters(), config)


def adamw_for(parameters: Iterable[Tensor], config: OptimizerConfig) -> Optimizer:
    """AdamW for some parameters of a model."""
    betas = (config.beta1, config.beta2)
    return AdamW(by_decay(parameters, config.weight_decay), lr=config.learning_rate, betas=betas, fused=True)


def adam(model: nn.Module, config: OptimizerConfig, _: ProcessGroup | None = None) -> Optimizer:
    """Adam; weight decay is a term of the gradient (arXiv:1412.6980)."""
    groups = by_decay(model.parameters(), config.weight_decay)
    betas = (config.beta1, config.beta2)
    return Adam(groups, lr=config.learning_rate, betas=betas, fused=True)


def sgd(model: nn.Module, config: OptimizerConfig, _: ProcessGroup | None = None) -> Optimizer:
    """Gradient descent with heavy-ball momentum; weight decay is a term of the gradient."""
    groups = by_decay(model.parameters(), config.weight_decay)
    return SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=True)


def by_decay(parameters: Iterable[Tensor], decay: float) -> list[dict[str, Any]]:
    """Groups of the parameters that require gradients: matrices and kernels decay; norms and biases do not.

    A fused update takes tensors of one device mesh only, so each mesh has groups of its own.
    """
    alike: dict[tuple[bool, object], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            key = parameter.dim() >= 2, getattr(parameter, "device_mesh", None)
            alike.setdefault(key, []).append(parameter)
    return [{"params": group, "weight_decay": decay if decays else 0.0} for (decays, _), group in alike.items()]


class EagerOptimizer(Optimizer):
    """An optimiser whose methods do not import the compiler; a subclass has a `step` of its own."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


def _eager(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """`kind`, whose `step` does not import the compiler either. PyTorch's wrapper of `step` also disables gradients."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (EagerOptimizer, kind), {"step": step})


AdamW = _eager(torch.optim.AdamW)
Adam = _eager(torch.optim.Adam)
SGD = _eager(torch.optim.SGD)

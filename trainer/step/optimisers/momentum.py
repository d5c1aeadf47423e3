"""AdamW, Adam and SGD: PyTorch's own, with fused updates."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from slipway.trainer.config.sections import Optimiser
from slipway.trainer.step.optimisers import eager
from slipway.trainer.step.optimisers.groups import by_decay


def adamw(model: nn.Module, config: Optimiser, _: ProcessGroup | None = None) -> Optimizer:
    """AdamW for all trained parameters; weight decay is decoupled (arXiv:1711.05101)."""
    return adamw_for(model.parameters(), config)


def adamw_for(parameters: Iterable[Tensor], config: Optimiser) -> Optimizer:
    """AdamW for some parameters of a model."""
    betas = (config.beta1, config.beta2)
    return eager.AdamW(by_decay(parameters, config.weight_decay), lr=config.learning_rate, betas=betas, fused=True)


def adam(model: nn.Module, config: Optimiser, _: ProcessGroup | None = None) -> Optimizer:
    """Adam; weight decay is a term of the gradient (arXiv:1412.6980)."""
    groups, betas = by_decay(model.parameters(), config.weight_decay), (config.beta1, config.beta2)
    return eager.Adam(groups, lr=config.learning_rate, betas=betas, fused=True)


def sgd(model: nn.Module, config: Optimiser, _: ProcessGroup | None = None) -> Optimizer:
    """Gradient descent with heavy-ball momentum; weight decay is a term of the gradient."""
    groups = by_decay(model.parameters(), config.weight_decay)
    return eager.SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=True)

"""Optimisers: AdamW, Adam and SGD as PyTorch has them, fused, and Muon for the matrices of the blocks.

What is trained is given by the parameters that require gradients. Matrices (and kernels) decay; vectors, such as
norms and biases, don't.
"""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer

from trainer.models.model import Model
from trainer.sections import Optimiser

Groups = list[dict[str, Any]]


def build(model: Model, config: Optimiser) -> Optimizer:
    """The optimiser of the configuration over the trained parameters of `model`, DTensors included."""
    match config.kind:
        case "adamw":
            return adamw(model, config)
        case "adam":
            return adam(model, config)
        case "sgd":
            return sgd(model, config)
        case "muon":
            return muon(model, config)


def adamw(model: nn.Module, config: Optimiser) -> torch.optim.AdamW:
    """Decoupled weight decay (arXiv:1711.05101)."""
    return _adamw(model.parameters(), config)


def adam(model: nn.Module, config: Optimiser) -> torch.optim.Adam:
    """Weight decay is a term of the gradient here (arXiv:1412.6980)."""
    betas = (config.beta1, config.beta2)
    return torch.optim.Adam(_groups(model.parameters(), config), lr=config.learning_rate, betas=betas, fused=True)


def sgd(model: nn.Module, config: Optimiser) -> torch.optim.SGD:
    """With heavy-ball momentum."""
    groups = _groups(model.parameters(), config)
    return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=True)


def muon(model: Model, config: Optimiser) -> "Together":
    """Muon for the matrices of the blocks; AdamW for all the rest: embeddings, head, kernels, vectors."""
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.dim() == 2]
    by_muon = set(matrices)
    rest = [parameter for parameter in model.parameters() if parameter not in by_muon]
    return Together(Muon([each for each in matrices if each.requires_grad], config), _adamw(rest, config))


class Muon(Optimizer):
    """Momentum whose every step is made orthogonal (Jordan et al., https://kellerjordan.github.io/posts/muon/).

    Updates have the root mean square of AdamW's (Liu et al., arXiv:2502.16982), so that one learning rate and one
    weight decay serve both. The numbers are those of `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, also for
    matrices that are divided over ranks, whose products would otherwise be summed over the ranks in bf16: each rank
    gathers the momentum, makes it orthogonal as a whole and takes its part. The state stays divided.
    """

    def __init__(self, matrices: Iterable[Tensor], config: Optimiser) -> None:
        defaults = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "momentum": config.momentum}
        super().__init__([{"params": list(matrices)}], defaults)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None, "the trainer computes its gradients before it asks for a step"
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._step(matrix, matrix.grad, group)
        return None

    def _step(self, matrix: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        nesterov = gradient.lerp(momentum, group["momentum"])
        scale = 0.2 * max(matrix.shape) ** 0.5
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        matrix.add_(_as_a_whole(orthogonal, nesterov).to(matrix.dtype), alpha=-group["lr"] * scale)


def orthogonal(matrix: Tensor, rounds: int = 5, epsilon: float = 1e-7) -> Tensor:
    """U S V^T with all singular values between about 0.5 and 1.5 instead of 1, in bf16.

    Newton-Schulz with the quintic of https://kellerjordan.github.io/posts/muon/.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16().T if tall else matrix.bfloat16()
    x = x / x.norm().clamp(min=epsilon)
    for _ in range(rounds):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _as_a_whole(function: Callable[[Tensor], Tensor], matrix: Tensor) -> Tensor:
    """`function` of the whole of a matrix, divided as the matrix is."""
    if not isinstance(matrix, DTensor):
        return function(matrix)
    whole = function(matrix.full_tensor())
    everywhere = [Replicate()] * matrix.device_mesh.ndim
    return DTensor.from_local(whole, matrix.device_mesh, everywhere).redistribute(placements=matrix.placements)


class Together(Optimizer):
    """Several optimisers, each of parameters of its own, behind the surface of one."""

    def __init__(self, *parts: Optimizer) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What `load_state_dict` ends with."""
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        """Give the parts these groups and this state to work on."""
        groups = iter(self.param_groups)
        for part in self._parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        for part in self._parts:
            part.step()
        return None


def _adamw(parameters: Iterable[Tensor], config: Optimiser) -> torch.optim.AdamW:
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(_groups(parameters, config), lr=config.learning_rate, betas=betas, fused=True)


def _groups(parameters: Iterable[Tensor], config: Optimiser) -> Groups:
    """The trained parameters by whether they decay, and by how they lie: fused updates take alike tensors only."""
    alike: dict[tuple[bool, object], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            key = parameter.dim() >= 2, getattr(parameter, "device_mesh", None)
            alike.setdefault(key, []).append(parameter)
    decay = config.weight_decay
    return [{"params": group, "weight_decay": decay if decays else 0.0} for (decays, _), group in alike.items()]

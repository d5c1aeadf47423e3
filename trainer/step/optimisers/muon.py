"""Muon for the matrices of the blocks, AdamW for all other parameters."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainer.config.sections import Optimiser
from trainer.models.model import Model
from trainer.start.divided import is_divided
from trainer.step.optimisers.eager import EagerOptimizer
from trainer.step.optimisers.momentum import adamw_for


def muon(model: Model, config: Optimiser) -> Optimizer:
    """Muon for the matrices of the blocks; AdamW for embeddings, head, kernels and vectors."""
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.dim() == 2]
    by_muon = set(matrices)
    rest = [parameter for parameter in model.parameters() if parameter not in by_muon]
    return CombinedOptimizer(Muon([each for each in matrices if each.requires_grad], config), adamw_for(rest, config))


class Muon(EagerOptimizer):
    """Momentum, made orthogonal at every step (Jordan et al., https://kellerjordan.github.io/posts/muon/).

    Updates have the root mean square of AdamW's (Liu et al., arXiv:2502.16982), so that one learning rate and one
    weight decay serve both. The numbers are those of `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`. They hold for
    matrices that are divided over ranks too: torch would sum products over the ranks in bf16; here each rank gathers
    the momentum, makes the whole of it orthogonal and takes its part. The state stays divided.
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
    if not is_divided(matrix):
        return function(matrix)
    from torch.distributed.tensor import DTensor, Replicate

    whole = function(matrix.full_tensor())
    everywhere = [Replicate()] * matrix.device_mesh.ndim
    return DTensor.from_local(whole, matrix.device_mesh, everywhere).redistribute(placements=matrix.placements)


class CombinedOptimizer(EagerOptimizer):
    """Several optimisers, each for parameters of its own, used as one."""

    def __init__(self, *parts: Optimizer) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._give_to_parts()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """`load_state_dict` ends with this call."""
        super().__setstate__(state)
        self._give_to_parts()

    def _give_to_parts(self) -> None:
        """Let the parts work on the groups and the state of this optimiser."""
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

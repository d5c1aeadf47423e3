"""Muon for the matrices of the blocks, AdamW for all other parameters."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from slipway.trainer.config.sections import OptimizerConfig
from slipway.trainer.models.model import Model
from slipway.trainer.step.optimizers import sharing
from slipway.trainer.step.optimizers.momentum import EagerOptimizer, adamw_for


def muon(model: Model, config: OptimizerConfig, copies: ProcessGroup | None = None) -> Optimizer:
    """Muon for the matrices of the blocks; AdamW for embeddings, head, kernels and vectors."""
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.dim() == 2]
    by_muon = set(matrices)
    rest = [parameter for parameter in model.parameters() if parameter not in by_muon]
    trained = [matrix for matrix in matrices if matrix.requires_grad]
    return CombinedOptimizer(Muon(trained, config, copies), adamw_for(rest, config))


class Muon(EagerOptimizer):
    """Momentum, orthogonalised at every step (Jordan et al., https://kellerjordan.github.io/posts/muon/).

    Updates have the root mean square of AdamW's (Liu et al., arXiv:2502.16982), so one learning rate and one weight
    decay serve both. The numbers are those of `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, also for matrices
    that are divided over ranks. There torch would sum products over the ranks in bf16; here one data-parallel rank
    orthogonalises each whole matrix (`slipway.trainer.step.optimizers.sharing`), and every rank applies its part. The
    state stays divided.
    """

    def __init__(self, matrices: Iterable[Tensor], config: OptimizerConfig, copies: ProcessGroup | None) -> None:
        """`copies`: ranks that hold the same whole matrices and get the same gradients."""
        defaults = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "momentum": config.momentum}
        super().__init__([{"params": list(matrices)}], defaults)
        self._copies = copies

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None, "the trainer computes its gradients before it asks for a step"
        for group in self.param_groups:
            matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
            for chosen in sharing.rounds(matrices):
                directions = sharing.orthogonalised([self._direction(matrix, group) for matrix in chosen], self._copies)
                for matrix, direction in zip(chosen, directions, strict=True):
                    scale = 0.2 * max(matrix.shape) ** 0.5
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(direction.to(matrix.dtype), alpha=-group["lr"] * scale)
        return None

    def _direction(self, matrix: Tensor, group: dict[str, Any]) -> Tensor:
        """Nesterov's direction: the gradient, interpolated with the updated momentum."""
        gradient = matrix.grad
        state = self.state[matrix]
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        return gradient.lerp(momentum, group["momentum"])


class CombinedOptimizer(EagerOptimizer):
    """Several optimisers, each for parameters of its own, used as one."""

    def __init__(self, *parts: Optimizer) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._give_to_parts()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """`load_state_dict` calls this last."""
        super().__setstate__(state)
        self._give_to_parts()

    def _give_to_parts(self) -> None:
        """Make the parts share the groups and the state of this optimiser."""
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

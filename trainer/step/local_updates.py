"""Local updates: each rank trains alone, and every `local_steps` steps the ranks synchronise their weights.

At a synchronisation, an outer SGD with Nesterov momentum takes a step. Its gradient is the mean over the ranks of their
weights' change since the last synchronisation. With rate 1 and no momentum that averages the weights (local SGD,
arXiv:1805.09767); DiLoCo (arXiv:2311.08105) takes 0.7 and 0.9 over an inner AdamW. Ranks keep their optimisers' states.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from slipway.trainer.config.sections import Communication
from slipway.trainer.node.world import World
from slipway.trainer.step.optimizers import momentum


class LocalUpdates:
    """One rank's part of the synchronisations; every rank holds a whole copy of the model.

    Between two synchronisations the ranks' weights differ. Right after one, all ranks have the same weights: the anchor
    from which the next synchronisation measures. A checkpoint of that moment needs only them and `state`.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, config: Communication, world: World, last_step: int
    ) -> None:
        """The ranks also synchronise after `last_step`."""
        self._model = model
        self._optimizer = optimizer
        self._world = world
        self._last_step = last_step
        self._every = config.local_steps
        self._trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._anchor = {name: nn.Parameter(torch.empty_like(weight)) for name, weight in self._trained.items()}
        self._outer = momentum.SGD(
            self._anchor.values(),
            lr=config.outer_learning_rate,
            momentum=config.outer_momentum,
            nesterov=config.outer_momentum > 0,
        )
        self._apart = False
        """Whether this rank has taken a step since the last synchronisation."""
        optimizer.register_step_pre_hook(self._remember_anchor)

    def synchronize_if_due(self, step: int) -> bool:
        """Synchronise if it is due after `step`; returns whether all ranks have the same weights now."""
        if step % self._every and step != self._last_step:
            return False
        self._synchronize()
        return True

    def state(self) -> dict[str, Tensor]:
        """This rank's own state, beside the weights, to continue after a synchronisation."""
        inner = {
            f"inner/{name}/{key}": torch.as_tensor(value)
            for name, weight in self._trained.items()
            for key, value in self._optimizer.state[weight].items()
        }
        return inner | {
            f"outer/{name}/{key}": value
            for name, anchor in self._anchor.items()
            for key, value in self._outer.state[anchor].items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned, and from the weights that the model has now."""
        states: dict[str, dict[str, dict[str, Any]]] = {"inner": {}, "outer": {}}
        for path, value in state.items():
            whose, name, key = path.split("/")
            weight = self._trained[name]
            states[whose].setdefault(name, {})[key] = value.to(weight.device, copy=True)
        for name, weight in self._trained.items():
            self._optimizer.state[weight] = states["inner"].get(name, {})
            self._outer.state[self._anchor[name]] = states["outer"].get(name, {})
        self._apart = False

    @torch.no_grad()
    def _remember_anchor(self, *_: object) -> None:
        """Remember the weights before the first step after a synchronisation."""
        if self._apart:
            return
        for name, weight in self._trained.items():
            self._anchor[name].copy_(weight)
        self._apart = True

    @torch.no_grad()
    def _synchronize(self) -> None:
        # Where gradients were not finite, the optimiser may have taken no step since the last synchronisation.
        self._remember_anchor()
        for name, weight in self._trained.items():
            self._anchor[name].grad = self._anchor[name] - weight
        self._average([anchor.grad for anchor in self._anchor.values() if anchor.grad is not None])
        self._outer.step()
        self._outer.zero_grad(set_to_none=True)
        for name, weight in self._trained.items():
            weight.copy_(self._anchor[name])
        self._average(self._statistics())
        self._apart = False

    def _statistics(self) -> list[Tensor]:
        """The running means and variances of the model; empty for a model without them."""
        weights = dict(self._model.named_parameters())
        model_state = self._model.state_dict()
        return [tensor for name, tensor in model_state.items() if name not in weights and tensor.is_floating_point()]

    def _average(self, tensors: list[Tensor]) -> None:
        """The mean over the ranks, in place."""
        if self._world.size == 1:
            return
        for tensor in tensors:
            tensor.div_(self._world.size)
        for waiting in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            assert waiting is not None
            waiting.wait()

"""The engine: the model laid over the ranks with its optimiser; gradients of a global batch, and updates from them.

Each rank is given its share of the global batch, and shares may differ by a sample. Losses and gradients are sums
divided by the global number of targets, so that neither the shares nor the micro-batches show in the result beyond
the rounding of a sum in another order.
"""

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from trainer import models
from trainer.config import Config
from trainer.models.model import Data, Places, Rows, part
from trainer.optim import adamw
from trainer.timeline import Timeline
from trainer.world import World


@dataclass(frozen=True)
class Sums:
    """Over this rank's samples."""

    loss: float
    """In nats, summed over the targets."""
    correct: int
    """Targets that are the likeliest prediction."""


class Engine:
    """One rank's part of the model, and of every step's work."""

    def __init__(self, config: Config, world: World, data: Data, timeline: Timeline) -> None:
        self.config, self.world, self.timeline = config, world, timeline
        torch.manual_seed(config.run.seed)
        self.model = models.build(config.model, data).to(world.device)
        self._parallel: nn.Module = self._replicated() if world.size > 1 else self.model
        self.optimiser = adamw(self.model, config.optimiser)
        torch.manual_seed(config.run.seed + 1 + world.rank)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Start from these instead of drawn ones, by parameter; whole tensors on the host."""
        self.model.load_state_dict(weights)

    def accumulate(self, rows: Rows, places: Places) -> Sums:
        """Gradients of the global mean loss from this rank's samples; communicates once, with the last of them.

        DDP averages gradients over the ranks, so that each rank's loss is scaled by the number of ranks: the
        sum over ranks is then the target-weighted mean whatever the ranks' shares are.
        """
        micro = self.config.batch.micro
        targets = self.config.batch.sequences * self.model.targets_per_sample
        loss = torch.zeros((), device=self.world.device)
        correct = torch.zeros((), device=self.world.device, dtype=torch.int64)
        for start in range(0, len(places), micro):
            last = start + micro >= len(places)
            with contextlib.nullcontext() if last else self._unreduced():
                with self.timeline.part("forward"):
                    summed, right = self._forward(part(rows, start, micro), places[start : start + micro])
                with self.timeline.part("backward"):
                    torch.autograd.backward(summed * (self.world.size / targets))
            loss, correct = loss + summed.detach(), correct + right
        return Sums(float(loss), int(correct))

    def clip(self) -> float:
        """Scale the gradients down to the configuration's norm; returns the norm that they had."""
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimiser.clip))

    def update(self, rate: float) -> None:
        """One step of the optimiser at this learning rate."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def measure(self, rows: Rows, places: Places) -> Sums:
        """The loss on these samples, without gradients."""
        self.model.eval()
        with torch.no_grad():
            summed, correct = self._forward(rows, places)
        self.model.train()
        return Sums(float(summed), int(correct))

    def _forward(self, rows: Rows, places: Places) -> tuple[Tensor, Tensor]:
        """The summed loss and the number of right predictions."""
        inputs, targets = self.model.prepare(rows, places, self.world.device)
        model = self._parallel if torch.is_grad_enabled() else self.model
        bf16 = self.config.run.precision == "bf16"
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=bf16):
            outputs = model(inputs)
        return self.model.loss(outputs, targets), self.model.correct(outputs.detach(), targets)

    def _replicated(self) -> DistributedDataParallel:
        """The model as DDP; the timeline learns when each bucket of gradients goes to be reduced."""
        # Buffers are constants here: sent around at every forward pass they would only make ranks wait for each other.
        replicated = DistributedDataParallel(self.model, broadcast_buffers=False)
        replicated.register_comm_hook(None, self.timeline.reducing(allreduce_hook))
        return replicated

    def _unreduced(self) -> contextlib.AbstractContextManager[None]:
        """Leave gradients on this rank: only the last backward of a step talks to the other ranks."""
        parallel = self._parallel
        return parallel.no_sync() if isinstance(parallel, DistributedDataParallel) else contextlib.nullcontext()

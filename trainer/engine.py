"""The engine: the model laid over the ranks with its optimiser; gradients of a global batch, and updates from them.

Each data-parallel rank is given its share of the global batch, and shares may differ by a sample. Losses and gradients
are sums divided by the global number of targets, so that neither the layout nor the micro-batches show in the result
beyond the rounding of a sum in another order.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer import communication, exhaustion, fitting, models, optim, parallel
from trainer.config import Config
from trainer.exhaustion import OutOfMemory
from trainer.layout import micro_batches
from trainer.local_updates import LocalUpdates
from trainer.microbatch import Part, cut
from trainer.models.model import Data, Places, Rows
from trainer.parallel import gradients, weights
from trainer.passes import Passes, Sums
from trainer.pipeline import Stages
from trainer.powersgd import PowerSGD
from trainer.precision import LossScale
from trainer.timeline import Timeline
from trainer.world import World

Tell = Callable[..., None]
"""Is told an event and its fields."""


class Engine:
    """One rank's part of the model, and of every step's work."""

    def __init__(self, config: Config, world: World, data: Data, tell: Tell = lambda _, **__: None) -> None:
        """Draw the model and lay it over the ranks. Raises ValueError for what does not fit the model."""
        self.config, self.world, self._tell = config, world, tell
        self.timeline = timeline = Timeline(world.device)
        micro = self._micro_batch(data)
        torch.manual_seed(config.run.seed)
        self.model = models.build(config.model, data)
        self.targets_per_sample, self.flops_per_sample = self.model.targets_per_sample, self.model.flops_per_sample
        _freeze(self.model, config.run.freeze)
        devices = parallel.meet(world)
        self._passes: Passes | Stages
        if devices is not None and world.mesh.pipeline > 1:
            self._passes = Stages(self.model, devices, config, data, world.device, timeline)
        else:
            self._passes = Passes(self.model, devices, config, world.device, timeline)
        self.optimiser = optim.build(self.model, config.optimiser)
        self._own = self._communicates(config)
        self._scale = LossScale() if config.run.precision == "fp16" else None
        self._overflowed = False
        self._micro = micro
        torch.manual_seed(config.run.seed + 1 + world.rank)

    def _micro_batch(self, data: Data) -> int:
        """What is noted of earlier starts, or less where the free memory asks for it; that is noted for later ones."""
        noted = exhaustion.noted(self.config, self.world.size)
        micro = fitting.micro_batch(self.config, self.world, data, noted)
        if micro < noted:
            if self.world.leads:
                exhaustion.note(self.config, self.world.size, micro)
            self._tell("micro_batch", micro=micro, asked=noted, free=fitting.free_bytes(self.world.device))
        return micro

    def _communicates(self, config: Config) -> PowerSGD | LocalUpdates | None:
        """Let this rank meet the others as `config.communication` says; what of that has a state of its own."""
        if config.communication.local_steps > 1:
            return LocalUpdates(self.model, self.optimiser, config.communication, self.world, config.run.steps)
        if isinstance(self._passes.called, DistributedDataParallel):
            return communication.attach(self._passes.called, config.communication, config.run.seed, self.timeline)
        return None

    def load_weights(self, given: dict[str, Tensor]) -> None:
        """Start from these instead of drawn ones, by parameter; whole tensors on the host."""
        weights.load(self.model, given)

    def accumulate(self, rows: Rows, places: Places) -> Sums:
        """Gradients of the global mean loss from this rank's samples; the sums of those whose losses count here.

        Ranks average gradients, so that each rank's loss is scaled by the number of shares: the sum over them is then
        the target-weighted mean whatever the shares are. Raises OutOfMemory when no micro-batch is small enough.
        """
        while True:
            try:
                sums = self._passes.train(self._parts(rows, places, self.config.batch.sequences), self._weight())
                return self._counted(sums)
            except (RuntimeError, MemoryError) as error:
                if not exhaustion.exhausted(error):
                    raise
                self._shrink(str(error).splitlines()[0])

    def clip(self) -> float:
        """Scale the gradients down to the configuration's norm; returns the norm that they had.

        0 where fp16 overflowed: `update` then changes nothing.
        """
        scale = self._scale.value if self._scale else 1.0
        norm = gradients.norm(self.model, self.world) / scale
        if self._scale is not None:
            self._overflowed = not self._scale.passes(math.isfinite(norm))
        if self._overflowed:
            assert self._scale is not None
            self._tell("overflowed", loss_scale=self._scale.value)
            return 0.0
        # As torch.nn.utils.clip_grads_with_norm_ does, over any layout.
        gradients.scale(self.model, torch.clamp(self.config.optimiser.clip / (norm + 1e-6), max=1.0) / scale)
        # Apart, ranks have gradients of their own: their mean norm is not finite for all as soon as it is for one.
        apart = isinstance(self._own, LocalUpdates)
        return self.world.sum(float(norm))[0] / self.world.size if apart else float(norm)

    def update(self, rate: float) -> None:
        """One step of the optimiser at this learning rate."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        if not self._overflowed:
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def meet_if_due(self, step: int) -> bool:
        """Whether all ranks have the same weights after `step`: always, but between the meetings of local updates."""
        return self._own.meet_if_due(step) if isinstance(self._own, LocalUpdates) else True

    def own_state(self) -> dict[str, Tensor]:
        """What goes on beside weights and optimiser, and only this rank has."""
        return self._own.state() if self._own else {}

    def load_own_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what `own_state` returned, on this rank or another; called after all else is loaded."""
        if self._own and state:
            self._own.load_state(state)

    def measure(self, rows: Rows, places: Places, count: int) -> Sums:
        """The loss on these samples, this rank's share of `count` that all ranks look at, without gradients."""
        self.model.eval()
        sums = self._passes.measure(self._parts(rows, places, count))
        self.model.train()
        return self._counted(sums)

    def extra_state(self) -> dict[str, Any]:
        """What goes on beside weights and optimiser, as JSON: for a checkpoint. The same on every rank."""
        return {"loss_scale": [self._scale.value, self._scale.steps]} if self._scale else {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Go on where `extra_state` was taken."""
        if self._scale and "loss_scale" in state:
            self._scale = LossScale(*state["loss_scale"])

    def _parts(self, rows: Rows, places: Places, sequences: int) -> list[Part]:
        """This rank's share of `sequences` in micro-batches, as many as each other rank has."""
        shares = self.world.data_size
        count = micro_batches(sequences, self._micro, shares)
        alike = -(-sequences // shares // count) if self.world.mesh.pipeline > 1 else 1
        # Blank samples are lost in every sum but running statistics: there, parts may be empty.
        return list(cut(rows, places, count, alike if self.model.recomputes else 0))

    def _weight(self) -> float:
        """By what a rank's summed losses are multiplied before their gradients are averaged over ranks."""
        targets = self.config.batch.sequences * self.targets_per_sample
        return self.world.data_size / targets * (self._scale.value if self._scale else 1.0)

    def _counted(self, sums: Sums) -> Sums:
        """Nothing where another rank has the same samples."""
        return sums if self.world.answers else Sums(0.0, 0)

    def _shrink(self, reason: str) -> None:
        """Halve the micro-batch. Raises OutOfMemory when that cannot be, or must begin on all ranks at once."""
        found, self._micro = self._micro, self._micro // 2
        self.optimiser.zero_grad(set_to_none=True)
        if not self._micro:
            raise OutOfMemory(f"out of memory with a micro-batch of 1: {exhaustion.ADVICE} ({reason})")
        exhaustion.note(self.config, self.world.size, self._micro)
        self._tell("out_of_memory", micro=found, retried_with=self._micro, reason=reason)
        if self.world.size > 1:
            raise OutOfMemory(f"out of memory with a micro-batch of {found}: the next start takes {self._micro}")


def _freeze(model: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Parameters whose names begin with one of these are not trained. Raises ValueError for a prefix of none."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise ValueError(f"field run.freeze: no parameter begins with {prefix!r}; there are {', '.join(names)}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(prefixes))

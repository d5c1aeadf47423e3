"""The engine: the model laid over the ranks with its optimiser; gradients of a global batch, and updates from them.

Each data-parallel rank has its share of the global batch, and shares may differ by a sample. Losses and gradients are
sums divided by the global number of targets, so that the layout and the micro-batches do not change the result, beyond
the rounding of a sum in another order.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from trainer.config.layout import micro_batches
from trainer.config.resolved import Config
from trainer.figures.timeline import Timeline
from trainer.models.model import Data, Rows, SampleNumbers
from trainer.node.world import World, read
from trainer.start import drawing
from trainer.start.initial import WeightSource
from trainer.step import building, communication, exhaustion, fitting, optimisers, parallel, randomness
from trainer.step.building import DividedModel
from trainer.step.exhaustion import OutOfMemory
from trainer.step.local_updates import LocalUpdates
from trainer.step.microbatch import MicroBatch, cut
from trainer.step.parallel import copies, gradients
from trainer.step.passes import Passes, Sums
from trainer.step.powersgd import PowerSGD
from trainer.step.precision import LossScale

if TYPE_CHECKING:
    from trainer.step.pipeline import PipelinePasses

OnEvent = Callable[..., None]
"""Receives the name of an event and its fields."""


@dataclass(frozen=True)
class StepTotals:
    """What a step is told about itself, over all ranks."""

    loss: float
    correct: float
    norm: float
    """Of the whole gradient, before it was scaled down."""
    others: list[float]


class Engine:
    """One rank's part of the model, and of every step's work."""

    def __init__(
        self,
        config: Config,
        world: World,
        data: Data,
        on_event: OnEvent = lambda _, **__: None,
        draws: bool = True,
    ) -> None:
        """Lay the model over the ranks, and draw its weights unless the caller will bring them (`draws` is False).

        Raises ValueError for settings that do not fit the model.
        """
        self.config, self.world, self._on_event = config, world, on_event
        self.timeline = Timeline(world.device)
        micro = self._micro_batch(data)
        self.devices = devices = parallel.device_mesh(world)
        divided = building.built(config, devices, data, world.device)
        self.model = divided.model
        self.targets_per_sample, self.flops_per_sample = divided.targets_per_sample, divided.flops_per_sample
        if draws:
            self.draw_weights()
        self._passes = self._build_passes(divided, devices, data)
        self.optimiser = optimisers.build(self.model, config.optimiser, parallel.copies_group(devices, config))
        self._own = self._build_communication(config)
        self._scale = LossScale() if config.run.precision == "fp16" else None
        self._overflowed = False
        self._micro = micro
        self.batches_measured = 0
        """How many micro-batches `measure` has gone through so far."""

    def _build_passes(self, divided: DividedModel, devices: DeviceMesh | None, data: Data) -> "Passes | PipelinePasses":
        if devices is None or self.world.mesh.pipeline == 1:
            return Passes(divided, devices, self.config, self.world.device, self.timeline)
        # Imported only here: PyTorch's pipelines import its compiler.
        from trainer.step.pipeline import PipelinePasses

        return PipelinePasses(divided, devices, self.config, data, self.world.device, self.timeline)

    def _micro_batch(self, data: Data) -> int:
        """The micro-batch that earlier starts noted, or a smaller one that fits the free memory; that one is noted."""
        noted = exhaustion.noted_micro_batch(self.config, self.world.size)
        micro = fitting.fitting_micro_batch(self.config, self.world, data, noted)
        if micro < noted:
            if self.world.leads:
                exhaustion.note_micro_batch(self.config, self.world.size, micro)
            self._on_event("micro_batch", micro=micro, asked=noted, free=fitting.free_bytes(self.world.device))
        return micro

    def _build_communication(self, config: Config) -> PowerSGD | LocalUpdates | None:
        """Connect this rank to the others as `config.communication` says; returns the part that has a state."""
        if config.communication.local_steps > 1:
            return LocalUpdates(self.model, self.optimiser, config.communication, self.world, config.run.steps)
        if isinstance(self._passes.called, DistributedDataParallel):
            return communication.attach(self._passes.called, config.communication, config.run.seed, self.timeline)
        return None

    def draw_weights(self) -> int:
        """Begin with weights that the seed decides; this rank draws its own part. Returns how many elements it drew.

        They are 0 for a model whose constructor has drawn them.
        """
        return drawing.draw(self.model, self.config.run.seed) if drawing.says_how_it_begins(type(self.model)) else 0

    def load_weights(self, source: WeightSource) -> None:
        """Begin with the weights of `source`; this rank reads its own part."""
        source(self.model.state_dict())

    def accumulate(self, rows: Rows, places: SampleNumbers) -> Sums:
        """Add this rank's gradients of the global mean loss; returns the sums of the samples that count on this rank.

        Ranks average gradients, so each rank's loss is scaled by the number of shares: the average is then the mean
        over all targets, whatever the shares are. Raises OutOfMemory when no micro-batch is small enough.
        """
        stage = self.world.mesh.stage(self.world.rank)
        while True:
            randomness.seed_for_step(self.config.run.seed, int(places[0]), stage)
            try:
                sums = self._passes.train(self._parts(rows, places, self.config.batch.sequences), self._weight())
                return self._counted(sums)
            except (RuntimeError, MemoryError) as error:
                if not exhaustion.is_out_of_memory(error):
                    raise
                self._shrink(str(error).splitlines()[0])

    def finish(self, sums: Sums, *others: float) -> StepTotals:
        """Scale the gradients down to the configuration's norm; `sums` and `others` of all ranks, and the norm before.

        One exchange between the ranks, and one transfer to the host: a step waits for the device here and nowhere else.
        The norm is 0 where fp16 overflowed: `update` then changes nothing.
        """
        with self.timeline.part("optimiser"):
            squares = gradients.squares(self.model, self.world)
        with self.timeline.part("communication"):
            # Waiting for other ranks is communication.
            totals = self.world.column(squares, sums.losses, sums.hits, *others)
            if self.world.size > 1:
                dist.all_reduce(totals)
        scale = self._scale.value if self._scale else 1.0
        with self.timeline.part("optimiser"):
            norm = totals[0].float().sqrt() / scale
            # As torch.nn.utils.clip_grads_with_norm_ does, over any layout.
            gradients.scale(self.model, torch.clamp(self.config.optimiser.clip / (norm + 1e-6), max=1.0) / scale)
            totals[0] = norm
        with self.timeline.part("communication"):
            found, loss, correct, *told = read(totals)
        return StepTotals(loss, correct, self._accepted(found), told)

    def clip(self) -> float:
        """`finish` with nothing but the gradients: returns their norm before."""
        return self.finish(Sums.zero(self.world.device)).norm

    def _accepted(self, norm: float) -> float:
        """The norm; 0 where fp16 overflowed."""
        if self._scale is not None:
            self._overflowed = not self._scale.accepts(math.isfinite(norm))
        if self._overflowed:
            assert self._scale is not None
            self._on_event("overflowed", loss_scale=self._scale.value)
            return 0.0
        return norm

    def update(self, rate: float) -> None:
        """Take one step of the optimiser at this learning rate, unless fp16 overflowed."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        if not self._overflowed:
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def synchronise_if_due(self, step: int) -> bool:
        """Synchronise local updates if due after `step`; returns whether all ranks have the same weights now."""
        return self._own.synchronise_if_due(step) if isinstance(self._own, LocalUpdates) else True

    def check_copies(self, step: int) -> None:
        """Compare the weights that several ranks hold. All ranks call it at once. Raises copies.Drifted."""
        copies.check(self.model, self.world, step, os.environ.get("SLIPWAY_NODE", "local"))

    def own_state(self) -> dict[str, Tensor]:
        """The state beside weights and optimiser that only this rank has."""
        return self._own.state() if self._own else {}

    def load_own_state(self, state: dict[str, Tensor]) -> None:
        """Continue from what `own_state` returned, on this rank or another; called after everything else is loaded."""
        if self._own and state:
            self._own.load_state(state)

    def measure(self, rows: Rows, places: SampleNumbers, count: int) -> Sums:
        """The sums over these samples, without gradients: this rank's share of the `count` samples of all ranks."""
        self.model.eval()
        sums = self._passes.measure(self._parts(rows, places, count), self._count_batch)
        self.model.train()
        return self._counted(sums)

    def _count_batch(self) -> None:
        self.batches_measured += 1

    def extra_state(self) -> dict[str, Any]:
        """The state beside weights and optimiser, as JSON; it is the same on every rank."""
        return {"loss_scale": [self._scale.value, self._scale.steps]} if self._scale else {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from what `extra_state` returned."""
        if self._scale and "loss_scale" in state:
            self._scale = LossScale(*state["loss_scale"])

    def _parts(self, rows: Rows, places: SampleNumbers, sequences: int) -> list[MicroBatch]:
        """This rank's share of `sequences` in micro-batches; every rank has equally many."""
        shares = self.world.data_size
        count = micro_batches(sequences, self._micro, shares)
        alike = -(-sequences // shares // count) if self.world.mesh.pipeline > 1 else 1
        # Blank samples change no sum, but they would change running statistics: such models get empty parts instead.
        return list(cut(rows, places, count, alike if self.model.recomputes else 0))

    def _weight(self) -> float:
        """The factor of a rank's summed losses, whose gradients are averaged over ranks afterwards."""
        targets = self.config.batch.sequences * self.targets_per_sample
        return self.world.data_size / targets * (self._scale.value if self._scale else 1.0)

    def _counted(self, sums: Sums) -> Sums:
        """`sums`, or zeros where another rank counts the same samples."""
        return sums if self.world.counts_losses else Sums.zero(self.world.device)

    def _shrink(self, reason: str) -> None:
        """Halve the micro-batch. Raises OutOfMemory if it was 1, or if all ranks must start again with the half."""
        found, self._micro = self._micro, self._micro // 2
        self.optimiser.zero_grad(set_to_none=True)
        if not self._micro:
            raise OutOfMemory(f"out of memory with a micro-batch of 1: {exhaustion.ADVICE} ({reason})")
        exhaustion.note_micro_batch(self.config, self.world.size, self._micro)
        self._on_event("out_of_memory", micro=found, retried_with=self._micro, reason=reason)
        if self.world.size > 1:
            told = f"out of memory with a micro-batch of {found}: the next start takes {self._micro}"
            raise OutOfMemory(told, answered=True)

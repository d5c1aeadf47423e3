"""The engine: the model with its optimiser, laid over the ranks; it computes gradients and updates the weights.

A step of the loop is `accumulate` (the forward and backward passes of this rank's micro-batches), `finish` (the sums
over all ranks, and the gradients' clipping) and `update` (the optimiser's step) or `leave_out`. `repeatable` encloses
the first two, and repeats them with smaller micro-batches if memory runs out.

Each data-parallel rank has its share of the global batch, and shares may differ by a sample. Losses and gradients are
sums divided by the global number of targets, so the layout and the micro-batches do not change the result, beyond the
rounding of a sum in another order.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from slipway.trainer.config.resolved import Config
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.models.model import Data, Rows, SampleNumbers
from slipway.trainer.node.world import Interrupted, SectionPeers, World, read
from slipway.trainer.start import drawing
from slipway.trainer.start.initial import WeightSource
from slipway.trainer.step import (
    building,
    communication,
    exhaustion,
    leaving,
    optimizers,
    parallel,
    randomness,
    step_state,
)
from slipway.trainer.step.building import DividedModel
from slipway.trainer.step.leaving import Leaving
from slipway.trainer.step.local_updates import LocalUpdates
from slipway.trainer.step.microbatch import MicroBatch, alike_parts, blank, cut
from slipway.trainer.step.parallel import copies, gradients
from slipway.trainer.step.passes import Passes, StepTotals, Sums
from slipway.trainer.step.powersgd import PowerSGD
from slipway.trainer.step.precision import LossScale
from slipway.trainer.step.stages import StageModule
from slipway.trainer.step.step_state import CarriedState, RunningStatistics, StepMark

if TYPE_CHECKING:
    from slipway.trainer.step.pipeline import PipelinePasses

OnEvent = Callable[..., None]
"""Receives the name of an event and its fields."""
PROBED_PARTS = 2
"""Micro-batches that are probed: the second one is the first that finds gradients in memory."""
T = TypeVar("T")


class Engine:
    """One rank's part of the model, and the work of its steps."""

    def __init__(
        self, config: Config, world: World, data: Data, on_event: OnEvent = lambda _, **__: None, draws: bool = True
    ) -> None:
        """Lay the model over the ranks, and draw its weights unless the caller loads them (`draws` is False).

        Raises ValueError for settings that do not fit the model.
        """
        self.config = config
        self.world = world
        self._data = data
        self._on_event = on_event
        self.timeline = Timeline(world.device)

        # How a step computes: in which micro-batches, and with fp16, at which loss scale.
        self._micro = exhaustion.noted_micro_batch(config, world.size)
        self._scale = LossScale() if config.run.precision == "fp16" else None
        self._overflowed = False
        """Whether the gradients of the current step overflowed, so that `update` keeps the weights."""

        # The model over the ranks; laid out anew when memory runs out.
        self._lay_out()

        # How far the current step is, and what repeats or abandons it.
        self.leaving = Leaving()
        self._mark = StepMark()
        self._statistics = RunningStatistics(self.model)
        self.batches_measured = 0
        """Micro-batches that `measure` has gone through so far."""

        if draws:
            self.draw_weights()

    def _lay_out(self) -> None:
        """Lay a new model and its optimiser over the ranks; the weights have no values yet."""
        config = self.config
        world = self.world
        self.devices = devices = parallel.device_mesh(world)
        self.divided = divided = building.built(config, devices, self._data, world.device)
        self.model = divided.model
        divided.take_share(parallel.sequence_share(world))
        self.targets_per_sample = divided.targets_per_sample
        self.flops_per_sample = divided.flops_per_sample
        self._parameters = dict(self.model.named_parameters())
        self._called = [self._replicated(module) for module in divided.called]
        self._passes = passes_of(divided, self._called, devices, config, self._data, world, self.timeline)
        self.optimizer = optimizers.build(self.model, config.optimizer, parallel.copies_group(devices, config))
        self._own = communication.connect(self.model, self._called, self.optimizer, config, world, self.timeline)
        """PowerSGD or local updates: what has a state of its own on each rank; None without either."""

    def _replicated(self, called: nn.Module) -> nn.Module:
        """The module that a pass calls: `called`, or DDP around it with replicas. A plan overrides this."""
        return parallel.replicate(called, self.devices, self.config)

    def draw_weights(self) -> int:
        """Draw this rank's part of the weights from the seed; returns their number, 0 if the constructor drew them."""
        if not drawing.says_how_it_begins(type(self.model)):
            return 0
        return drawing.draw(self.model, self.config.run.seed)

    def load_weights(self, source: WeightSource) -> None:
        """Begin with the weights of `source`; this rank reads its own part."""
        source(self.model.state_dict())

    def accumulate(self, rows: Rows, sample_ids: SampleNumbers, sequences: int | None = None) -> Sums:
        """Forward and backward: add this rank's gradients of the global mean loss; returns the sums that it counts.

        The samples are this rank's share of a batch, or of `sequences` samples. Ranks average gradients, so each rank's
        loss is scaled by their number: the average is then the mean over all targets, whatever the shares are. Raises
        OutOfMemory if no micro-batch is small enough, or if this rank cannot shrink it alone: inside `repeatable`, all
        ranks then shrink it together.
        """
        self._statistics.remember()
        while True:
            try:
                return self._accumulate(rows, sample_ids, sequences or self.config.batch.sequences)
            except (RuntimeError, MemoryError) as error:
                if not exhaustion.is_out_of_memory(error):
                    raise
                reason = exhaustion.first_line(error)
                if not self._works_alone:
                    raise exhaustion.out_of_memory(self._largest, reason) from None
            self._shrink(reason)
            self._statistics.restore(self.model)

    def repeatable(self, work: Callable[[], T]) -> T:
        """Returns `work()`, which accumulates gradients and ends with a collective of all ranks.

        If memory runs out on any rank, all ranks leave `work`, halve the micro-batch and repeat it from the weights
        that they have. Raises on all ranks: OutOfMemory if the micro-batch is 1, and StepLeft if a rank abandons the
        step.
        """
        peers = self.world.groups.peers if self.world.groups and self._can_be_repeated else None
        self._mark.begin(self.extra_state())
        if peers is None:
            with exhaustion.noting(self.config, self.world.size, lambda: self._largest):
                return work()
        while True:
            try:
                with peers.section(leaving.reason):
                    return work()
            except Interrupted as interrupted:
                reason = str(interrupted)
            with self.timeline.doing("rebuilding"):
                if leaving.is_asked(reason):
                    self.leave_out()
                else:
                    self._shrink(reason)
                self._divide_again(peers)
            leaving.raise_if_asked(reason)

    def probe(self) -> None:
        """Find a micro-batch that fits all ranks, before the first step.

        Blank samples, as many as the largest parts of a step, go through the model beside memory for the optimiser's
        state. There is no probe if one of these ranks and this layout is on record, or if running out of memory would
        end the process instead of raising an error.
        """
        known = exhaustion.has_noted(self.config, self.world.size)
        useful = exhaustion.is_an_error_on(self.world.device) and not known
        if not self._can_be_repeated or not self.world.broadcast(useful):
            return
        begun = time.perf_counter()
        requested_micro = self._micro
        self.repeatable(self._try_largest_parts)
        if self.world.is_rank_zero:
            exhaustion.note_micro_batch(self.config, self.world.size, self._micro)
        self._on_event("probed", micro=self._micro, asked=requested_micro, seconds=time.perf_counter() - begun)

    def _try_largest_parts(self) -> None:
        """Compute the gradients of blank samples and drop them; the second part runs beside those of the first."""
        share = -(-self.config.batch.sequences // self.world.data_size)
        count = share if self.world.mesh.pipeline > 1 else min(share, PROBED_PARTS * self._micro)
        rows = blank(self._data, count, self.config.model.reads_documents)
        sample_ids = np.zeros(count, np.uint64)
        copies = self.config.optimizer.copies
        reserved = step_state.reserve(self._parameters.values(), self.optimizer, copies)
        self.accumulate(rows, sample_ids, count * self.world.data_size)
        del reserved
        self.optimizer.zero_grad(set_to_none=True)
        self._statistics.restore(self.model)
        self.world.all_reduce(0.0)

    def _accumulate(self, rows: Rows, sample_ids: SampleNumbers, sequences: int) -> Sums:
        part = self.world.mesh.drawing_part(self.world.rank)
        randomness.seed_for_step(self.config.run.seed, int(sample_ids[0]), part)
        parts = self.leaving.guarded(self._parts(rows, sample_ids, sequences, trains=True))
        sums = self._passes.train(parts, self._weight())
        parallel.complete_gradients(self.model, self.devices)
        return self._counted(sums)

    @property
    def _works_alone(self) -> bool:
        """Whether no other rank waits for this one before it has all its gradients."""
        return self.world.size == 1 or isinstance(self._own, LocalUpdates)

    @property
    def can_leave(self) -> bool:
        """Whether all ranks can abandon a step in the middle."""
        together = self.world.groups is not None and self._can_be_repeated and not isinstance(self._own, LocalUpdates)
        return together or self.world.size == 1

    @property
    def steps_to_stop(self) -> int:
        """How many steps a stop may have to wait for: 0 if ranks can abandon one, a round with local updates."""
        return 0 if self.can_leave else self.config.communication.local_steps

    @property
    def _can_be_repeated(self) -> bool:
        """Whether a step that is abandoned in the middle leaves no trace.

        PowerSGD changes its errors bucket by bucket. Under tensor parallelism, a rank that abandoned its step did not
        get its memory back, when this was tried.
        """
        return not isinstance(self._own, PowerSGD) and self.world.mesh.tensor == 1

    def finish(self, sums: Sums, *others: float) -> StepTotals:
        """Clip the gradients to the configuration's norm; returns the sums of `sums` and `others` over all ranks.

        It takes one all-reduce and one transfer to the host: a step waits for the device here and nowhere else. The
        norm is 0 if fp16 overflowed; `update` then keeps the weights.
        """
        with self.timeline.part("optimizer"):
            squares = gradients.squares(self.model, self.world)
        with self.timeline.part("communication"):
            # This time includes the wait for slower ranks.
            totals = self.world.to_vector(squares, sums.losses, sums.hits, *others)
            if self.world.size > 1:
                dist.all_reduce(totals)
        scale = self._scale.value if self._scale else 1.0
        with self.timeline.part("optimizer"):
            norm = totals[0].float().sqrt() / scale
            # The same as torch.nn.utils.clip_grads_with_norm_, for any layout.
            gradients.scale(self.model, torch.clamp(self.config.optimizer.clip / (norm + 1e-6), max=1.0) / scale)
            totals[0] = norm
        with self.timeline.part("communication"):
            total_norm, loss, correct, *other_sums = read(totals)
        return StepTotals(loss, correct, self._accepted(total_norm), other_sums)

    def clip(self) -> float:
        """`finish` without sums: clip the gradients; returns their norm before."""
        return self.finish(Sums.zero(self.world.device)).norm

    def _accepted(self, norm: float) -> float:
        """The norm; 0 if fp16 overflowed."""
        if self._scale is not None:
            self._overflowed = not self._scale.accepts(math.isfinite(norm))
        if self._overflowed:
            assert self._scale is not None
            self._on_event("overflowed", loss_scale=self._scale.value)
            return 0.0
        return norm

    def update(self, rate: float) -> None:
        """Take the optimiser's step at this learning rate, unless fp16 overflowed."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self._mark.updating():
            if not self._overflowed:
                self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def can_leave_out(self) -> bool:
        """Whether `leave_out` undoes all changes of a batch; it cannot undo those of PowerSGD's errors."""
        return not isinstance(self._own, PowerSGD)

    def leave_out(self) -> None:
        """Skip the batch: drop its gradients and its changes of running statistics, and keep the weights."""
        self.optimizer.zero_grad(set_to_none=True)
        self._statistics.restore(self.model)
        self._mark.begun = False

    def synchronize_if_due(self, step: int) -> bool:
        """Synchronise local updates if due after `step`; returns whether all ranks have the same weights now."""
        if not isinstance(self._own, LocalUpdates):
            return True
        return self._own.synchronize_if_due(step)

    def check_copies(self, step: int) -> None:
        """Compare the weights that several ranks hold. All ranks call it at the same time. Raises copies.Drifted."""
        copies.check(self.model, self.world, step, os.environ.get("SLIPWAY_NODE", "local"))

    def whole_state(self) -> CarriedState | None:
        """This rank's part of the state after its last update, for the next generation.

        None if an error interrupted the update, or if the rank has a state that no other rank could replace.
        """
        if self._mark.carried_state or self._own is not None or self._mark.halfway:
            return self._mark.carried_state
        if not self._mark.begun:
            self._statistics.remember()
            self._mark.extra = self.extra_state()
        return step_state.take(self._parameters, self.optimizer, self._statistics, self._mark.extra)

    def continue_from(self, state: CarriedState) -> None:
        """Continue from a state of the same part of the model; takes the weights out of `state`, to free memory."""
        step_state.give(self.model, self.optimizer, state)
        self._statistics.give(self.model, state.statistics)
        self.load_extra_state(state.extra)

    def own_state(self) -> dict[str, Tensor]:
        """The state, beside weights and optimiser, that no other rank has."""
        return self._own.state() if self._own else {}

    def load_own_state(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of `own_state`, of this rank or another; called after everything else is loaded."""
        if self._own and state:
            self._own.load_state(state)

    def measure(self, rows: Rows, sample_ids: SampleNumbers, count: int) -> Sums:
        """The sums over these samples, without gradients: this rank's share of `count` samples."""
        self.divided.train(False)
        sums = self._passes.measure(self._parts(rows, sample_ids, count), self._count_batch)
        self.divided.train(True)
        return self._counted(sums)

    def _count_batch(self) -> None:
        self.batches_measured += 1

    def extra_state(self) -> dict[str, Any]:
        """The state, beside weights and optimiser, that is the same on every rank; as JSON."""
        if self._scale is None:
            return {}
        return {"loss_scale": [self._scale.value, self._scale.steps]}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from the result of `extra_state`."""
        if self._scale and "loss_scale" in state:
            self._scale = LossScale(*state["loss_scale"])

    def _parts(self, rows: Rows, sample_ids: SampleNumbers, sequences: int, trains: bool = False) -> list[MicroBatch]:
        """This rank's share of `sequences` in micro-batches; every rank has equally many."""
        ranks = self.world.mesh.pipeline
        # Interleaved stages take a step's micro-batches in rounds, one for each rank.
        rounds = ranks if trains and self.config.layout.schedule == "interleaved" else 1
        count, largest = alike_parts(sequences, self._micro, self.world.data_size, rounds)
        smallest = largest if ranks > 1 else 1
        if not self.model.recomputes:
            # Blank samples change no sum, but they would change running statistics: such models get empty parts.
            smallest = 0
        return list(cut(rows, sample_ids, count, smallest))

    def _weight(self) -> float:
        """The factor of a rank's summed losses: the ranks average the gradients afterwards."""
        targets = self.config.batch.sequences * self.targets_per_sample
        scale = self._scale.value if self._scale else 1.0
        return self.world.mesh.gradient_ranks / targets * scale

    def _counted(self, sums: Sums) -> Sums:
        """`sums`, or zeros if another rank counts the same samples."""
        if self.world.counts_losses:
            return sums
        return Sums.zero(self.world.device)

    @property
    def _largest(self) -> int:
        """Samples in the largest part of this rank's share."""
        return min(self._micro, -(-self.config.batch.sequences // self.world.data_size))

    def _shrink(self, reason: str) -> None:
        """Halve the micro-batch. Raises OutOfMemory if it was 1."""
        self.optimizer.zero_grad(set_to_none=True)
        largest = self._largest
        if largest == 1:
            raise exhaustion.out_of_memory(largest, reason)
        self._micro = largest // 2
        if self.world.is_rank_zero or self._works_alone:
            exhaustion.note_micro_batch(self.config, self.world.size, self._micro)
        self._on_event("out_of_memory", micro=largest, retried_with=self._micro, reason=reason)

    def _divide_again(self, peers: SectionPeers) -> None:
        """Move the weights into a new model on new process groups. All ranks call it at the same time."""
        self._mark.carried_state = step_state.take(self._parameters, self.optimizer, self._statistics, self._mark.extra)
        if self.world.device.type == "cuda":
            torch.cuda.synchronize()
        del self.divided, self.model, self._called, self._passes
        del self.optimizer, self._parameters, self.devices, self._own
        exhaustion.give_back_memory(self.world.device)
        peers.rejoin()
        self._lay_out()
        self.continue_from(self._mark.carried_state)
        self._mark.carried_state = None


def passes_of(
    divided: DividedModel,
    called: Sequence[nn.Module],
    devices: DeviceMesh | None,
    config: Config,
    data: Data,
    world: World,
    timeline: Timeline,
) -> "Passes | PipelinePasses":
    """The passes of this rank; `called` has one module for each of its stages."""
    if devices is None or world.mesh.pipeline == 1:
        (module,) = called
        return Passes(divided.model, module, config, world.device, timeline)
    # Imported only here: PyTorch's pipelines import its compiler.
    from slipway.trainer.step.pipeline import PipelinePasses

    stages = [module for module in divided.called if isinstance(module, StageModule)]
    return PipelinePasses(divided.model, stages, called, devices, config, data, world.device, timeline)

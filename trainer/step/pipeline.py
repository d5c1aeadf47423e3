"""Pipeline parallelism: each rank has consecutive layers, and micro-batches pass from rank to rank.

PyTorch's schedules pass them. They need micro-batches of one size, so parts are filled up with blank samples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trainer import models
from trainer.config.resolved import Config
from trainer.data.pictures import Labelled
from trainer.figures.timeline import Timeline
from trainer.models.model import Data, Model, Rows
from trainer.models.outline import without_memory
from trainer.step.microbatch import MicroBatch, joined
from trainer.step.parallel.replicas import free_gathered_weights
from trainer.step.passes import Sums, Tally, prepared, score
from trainer.step.stages import StageModule


class PipelinePasses:
    """Forward and backward passes of this rank's stage, by PyTorch's schedules."""

    def __init__(
        self,
        stage: StageModule,
        called: nn.Module,
        devices: DeviceMesh,
        config: Config,
        data: Data,
        device: torch.device,
        timeline: Timeline,
    ) -> None:
        """`called` calls the stage, and averages gradients where replicas do."""
        self._timeline, self._stage, self.called = timeline, stage, called
        self._model, self._config, self._device = stage.model, config, device
        self._group = devices["pipeline"].get_group()
        self._index, self._count = devices["pipeline"].get_local_rank(), devices["pipeline"].size()
        self._shapes = _shapes(config, data, stage.model)
        self._schedules: dict[tuple[int, int, bool], Schedule1F1B | ScheduleGPipe] = {}
        self._parts: Sequence[MicroBatch] = ()
        self._weight, self._targets, self._tally = 0.0, torch.empty(0), Tally(device)

    def train(self, parts: Sequence[MicroBatch], weight: float) -> Sums:
        """Add the gradients of `weight` times the loss. Sums are those of the last stage, and zeros elsewhere."""
        inputs, target, bounds = self._prepare(parts, weight)
        with self._timeline.part("pipeline"):
            self._schedule(parts, True).step(*inputs, target=target, return_outputs=False, **bounds)
        return self._tally.sums()

    def measure(self, parts: Sequence[MicroBatch], on_part: Callable[[], None]) -> Sums:
        """The sums without gradients; `on_part` is called once: a schedule runs all parts together."""
        inputs, target, bounds = self._prepare(parts, 1.0)
        with torch.no_grad():
            self._schedule(parts, False).eval(*inputs, target=target, losses=[], **bounds)
        on_part()
        free_gathered_weights(self._stage)
        return self._tally.sums()

    def _prepare(
        self, parts: Sequence[MicroBatch], weight: float
    ) -> tuple[tuple[Tensor, ...], Tensor | None, dict[str, Any]]:
        """The inputs, for the first stage; the numbers of the micro-batches, for the last one; bounds, for each."""
        rows = joined([part.rows for part in parts])
        places = np.concatenate([part.places for part in parts])
        inputs, targets, bounds = prepared(self._model, rows, places, self._device)
        self._parts, self._weight, self._targets, self._tally = parts, weight, targets, Tally(self._device)
        target = torch.arange(len(parts)) if self._stage.last else None
        # The stage was described to the schedule by contiguous tensors, so it must receive such tensors.
        given = (inputs.contiguous(),) if self._stage.first else ()
        return given, target, dict(zip(("begins",), bounds, strict=False))

    def _loss(self, outputs: Tensor, which: Tensor) -> Tensor:
        """The weighted loss of one micro-batch."""
        index, size = int(which), len(outputs)
        targets = self._targets[index * size : (index + 1) * size]
        loss, correct = score(self._model, outputs, targets, self._parts[index].real)
        self._tally.add(loss, correct)
        return loss * self._weight

    def _schedule(self, parts: Sequence[MicroBatch], trains: bool) -> Schedule1F1B | ScheduleGPipe:
        """The schedule for this number and size of micro-batches; it is kept, as it has receive buffers."""
        key = len(parts), len(parts[0].places), trains
        if key not in self._schedules:
            in_turn = self._config.layout.schedule == "1f1b" and trains
            kind = Schedule1F1B if in_turn else ScheduleGPipe
            self._schedules[key] = kind(self._stage_for(key[1], trains), key[0], loss_fn=self._loss, scale_grads=False)
        return self._schedules[key]

    def _stage_for(self, size: int, trains: bool) -> PipelineStage:
        """The stage for micro-batches of `size` samples, with the shapes of its inputs and outputs."""
        inputs, hidden, outputs = (each.new_empty(size, *each.shape[1:]) for each in self._shapes)
        given = inputs if self._stage.first else hidden.requires_grad_(trains)
        taken = outputs.requires_grad_(trains) if self._stage.last else hidden.requires_grad_(trains)
        called = self.called if trains else self._stage
        return PipelineStage(called, self._index, self._count, self._device, given, taken, group=self._group)


def _shapes(config: Config, data: Data, divided: Model) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, activations between blocks and outputs of one sample on this rank, as tensors without memory."""
    with without_memory():
        model = models.build(config.model, data)
    blank: Rows = np.zeros((1, data.length + 1), np.uint16)
    if model.reads == "pictures":
        blank = Labelled(np.zeros((1, *data.picture), np.uint8), np.zeros(1, np.int64))
    inputs = model.prepare(blank, np.zeros(1, np.uint64), torch.device("cpu"))[0].to("meta")
    inputs = inputs if divided.share is None else divided.share.cut(inputs)
    hidden = model.first(inputs)
    return inputs, divided.stream.own(hidden.detach()), divided.vocabulary.own(model.last(hidden).detach())

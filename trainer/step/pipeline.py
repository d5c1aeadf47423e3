"""Pipeline parallelism: each rank has one or several stages, and micro-batches pass from stage to stage.

PyTorch's schedules pass them. They need micro-batches of one size, so parts are filled up with blank samples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)

from slipway.trainer import models
from slipway.trainer.config.resolved import Config
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.models.model import Data, Model, Rows
from slipway.trainer.models.outline import without_memory
from slipway.trainer.step.microbatch import MicroBatch, joined
from slipway.trainer.step.parallel.replicas import free_gathered_weights
from slipway.trainer.step.passes import Sums, prepared, score
from slipway.trainer.step.stages import StageModule, stages_of

OneStage = Schedule1F1B | ScheduleGPipe
SeveralStages = ScheduleInterleaved1F1B | ScheduleLoopedBFS


class PipelinePasses:
    """Forward and backward passes of this rank's stages, by PyTorch's schedules."""

    def __init__(
        self,
        model: Model,
        stages: Sequence[StageModule],
        called: Sequence[nn.Module],
        devices: DeviceMesh,
        config: Config,
        data: Data,
        device: torch.device,
        timeline: Timeline,
    ) -> None:
        """`called`: the modules that call `stages`, the parts of `model`; with replicas, DDP around each stage."""
        self._timeline = timeline
        self._config = config
        self._device = device

        # The stages of this rank.
        self._model = model
        self._stages = stages
        self._called = called
        self._group = devices["pipeline"].get_group()
        self._numbers = stages_of(devices["pipeline"].get_local_rank(), devices["pipeline"].size(), len(stages))
        self._count = devices["pipeline"].size() * len(stages)
        self._shapes = _shapes(config, data, model)
        self._schedules: dict[tuple[int, int, bool], OneStage | SeveralStages] = {}

        # The pass that a schedule is running; `_loss` reads and adds to it.
        self._parts: Sequence[MicroBatch] = ()
        self._weight = 0.0
        self._targets = torch.empty(0)
        self._sums = Sums.zero(device)

    def train(self, parts: Sequence[MicroBatch], weight: float) -> Sums:
        """Forward and backward: add the gradients of `weight` times the loss; the sums are zero but on the last stage.

        The schedule takes the loss of each micro-batch from `_loss`, and starts its backward pass.
        """
        inputs, target, bounds = self._prepare(parts, weight)
        with self._timeline.part("pipeline"):
            self._schedule(parts, True).step(*inputs, target=target, return_outputs=False, **bounds)
        return self._sums

    def measure(self, parts: Sequence[MicroBatch], on_part: Callable[[], None]) -> Sums:
        """The sums without gradients; `on_part` is called once, because a schedule runs all parts together."""
        inputs, target, bounds = self._prepare(parts, 1.0)
        with torch.no_grad():
            self._schedule(parts, False).eval(*inputs, target=target, losses=[], **bounds)
        on_part()
        for stage in self._stages:
            free_gathered_weights(stage)
        return self._sums

    def _prepare(
        self, parts: Sequence[MicroBatch], weight: float
    ) -> tuple[tuple[Tensor, ...], Tensor | None, dict[str, Any]]:
        """The inputs for the first stage, the micro-batches' indices for the last one, and the bounds for each."""
        rows = joined([part.rows for part in parts])
        sample_ids = np.concatenate([part.sample_ids for part in parts])
        inputs, targets, bounds = prepared(self._model, rows, sample_ids, self._device)
        self._parts = parts
        self._weight = weight
        self._targets = targets
        self._sums = Sums.zero(self._device)
        target = torch.arange(len(parts)) if self._stages[-1].last else None
        # The schedule allocated contiguous tensors for the stage, so the inputs must be contiguous.
        arguments = (inputs.contiguous(),) if self._stages[0].first else ()
        return arguments, target, dict(zip(("begins",), bounds, strict=False))

    def _loss(self, outputs: Tensor, which: Tensor) -> Tensor:
        """The weighted loss of one micro-batch."""
        index = int(which)
        size = len(outputs)
        targets = self._targets[index * size : (index + 1) * size]
        loss, correct = score(self._model, outputs, targets, self._parts[index].real)
        self._sums = self._sums.plus(loss, correct)
        return loss * self._weight

    def _schedule(self, parts: Sequence[MicroBatch], trains: bool) -> OneStage | SeveralStages:
        """The schedule for this number and size of micro-batches; cached, because it owns receive buffers."""
        key = len(parts), len(parts[0].sample_ids), trains
        if key not in self._schedules:
            self._schedules[key] = self._new_schedule(*key)
        return self._schedules[key]

    def _new_schedule(self, count: int, size: int, trains: bool) -> OneStage | SeveralStages:
        """One of PyTorch's schedules. Without a backward pass to alternate with, each stage takes all parts in turn."""
        stages: list[Any] = [self._stage(index, size, trains) for index in range(len(self._stages))]
        if len(stages) > 1:
            several = ScheduleInterleaved1F1B if trains else ScheduleLoopedBFS
            return several(stages, count, loss_fn=self._loss, scale_grads=False)
        one = Schedule1F1B if trains and self._config.layout.schedule == "1f1b" else ScheduleGPipe
        return one(stages[0], count, loss_fn=self._loss, scale_grads=False)

    def _stage(self, index: int, size: int, trains: bool) -> PipelineStage:
        """A stage of this rank for micro-batches of `size` samples, with the shapes of its inputs and outputs."""
        stage = self._stages[index]
        inputs, hidden, outputs = (tensor.new_empty(size, *tensor.shape[1:]) for tensor in self._shapes)
        stage_input = inputs if stage.first else hidden.requires_grad_(trains)
        taken = outputs.requires_grad_(trains) if stage.last else hidden.requires_grad_(trains)
        called = self._called[index] if trains else stage
        return PipelineStage(
            called, self._numbers[index], self._count, self._device, stage_input, taken, group=self._group
        )


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

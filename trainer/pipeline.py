"""Pipeline parallelism: each rank has a consecutive part of the layers, and micro-batches pass from one to the next.

PyTorch's schedules do the passing. They want micro-batches of one size, so that parts are filled up with blanks.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trainer import models, parallel
from trainer.config import Config
from trainer.microbatch import Part
from trainer.models.model import Data, Model, Rows
from trainer.order import share
from trainer.parallel.data import divided_again
from trainer.passes import Sums, Tally, score
from trainer.pictures import Labelled
from trainer.precision import autocast
from trainer.timeline import Timeline


class Stage(nn.Module):
    """A stage's part of the model: what it is given, through the blocks that are here."""

    def __init__(self, model: Model, config: Config, first: bool, last: bool) -> None:
        super().__init__()
        self.model, self.first, self.last, self._precision = model, first, last, config.run.precision

    def forward(self, x: Tensor) -> Tensor:
        """The first stage takes inputs; the last one gives outputs; between them pass activations, in fp32."""
        with autocast(self._precision, x.device):
            x = self.model.first(x) if self.first else x
            x = self.model.through(x)
            x = self.model.last(x) if self.last else x
        return x.float()


class Stages:
    """This rank's stage, and the schedules that it follows."""

    def __init__(
        self, model: Model, devices: DeviceMesh, config: Config, data: Data, device: torch.device, timeline: Timeline
    ) -> None:
        self._timeline = timeline
        self._model, self._config, self._device = model, config, device
        self._group = devices["pipeline"].get_group()
        self._index, self._count = devices["pipeline"].get_local_rank(), devices["pipeline"].size()
        keep(model, self._index, self._count)
        model.to(device)
        parallel.divide(model, devices, config)
        self._stage = Stage(model, config, self._index == 0, self._index == self._count - 1)
        self.called = parallel.share(self._stage, model, devices, config)
        self._shapes = _shapes(config, data)
        self._schedules: dict[tuple[int, int, bool], Schedule1F1B | ScheduleGPipe] = {}
        self._parts: Sequence[Part] = ()
        self._weight, self._targets, self._tally = 0.0, torch.empty(0), Tally(device)

    def train(self, parts: Sequence[Part], weight: float) -> Sums:
        """Add the gradients of `weight` times the loss. Sums are those of the last stage, and zeros elsewhere."""
        inputs, target = self._begin(parts, weight)
        with self._timeline.part("pipeline"):
            self._schedule(parts, True).step(*inputs, target=target, return_outputs=False)
        return self._tally.sums()

    def measure(self, parts: Sequence[Part]) -> Sums:
        """The sums without gradients."""
        inputs, target = self._begin(parts, 1.0)
        with torch.no_grad():
            self._schedule(parts, False).eval(*inputs, target=target, losses=[])
        divided_again(self._stage)
        return self._tally.sums()

    def _begin(self, parts: Sequence[Part], weight: float) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """What the first stage takes, and what the last one is told: which part each micro-batch is."""
        rows = _joined([part.rows for part in parts])
        places = np.concatenate([part.places for part in parts])
        inputs, targets = self._model.prepare(rows, places, self._device)
        self._parts, self._weight, self._targets, self._tally = parts, weight, targets, Tally(self._device)
        target = torch.arange(len(parts)) if self._stage.last else None
        # A schedule takes what lies in memory as it was told, and it was told of contiguous tensors.
        return (inputs.contiguous(),) if self._stage.first else (), target

    def _loss(self, outputs: Tensor, which: Tensor) -> Tensor:
        """The weighted loss of one micro-batch."""
        index, size = int(which), len(outputs)
        targets = self._targets[index * size : (index + 1) * size]
        loss, correct = score(self._model, outputs, targets, self._parts[index].real)
        self._tally.add(loss, correct)
        return loss * self._weight

    def _schedule(self, parts: Sequence[Part], trains: bool) -> Schedule1F1B | ScheduleGPipe:
        """The schedule for as many micro-batches of this size; kept, as it has buffers to receive them."""
        key = len(parts), len(parts[0].places), trains
        if key not in self._schedules:
            in_turn = self._config.layout.schedule == "1f1b" and trains
            kind = Schedule1F1B if in_turn else ScheduleGPipe
            self._schedules[key] = kind(self._described(key[1], trains), key[0], loss_fn=self._loss, scale_grads=False)
        return self._schedules[key]

    def _described(self, size: int, trains: bool) -> PipelineStage:
        """The stage for micro-batches of `size` samples, told what it receives and gives."""
        inputs, hidden, outputs = (each.new_empty(size, *each.shape[1:]) for each in self._shapes)
        given = inputs if self._stage.first else hidden.requires_grad_(trains)
        taken = outputs.requires_grad_(trains) if self._stage.last else hidden.requires_grad_(trains)
        called = self.called if trains else self._stage
        return PipelineStage(called, self._index, self._count, self._device, given, taken, group=self._group)


def keep(model: Model, index: int, count: int) -> None:
    """Take everything out of the model but what stage `index` of `count` needs; names stay."""
    assert not set(model.first_uses) & set(model.last_uses)
    mine = share(len(model.blocks), index, count)
    for number in set(range(len(model.blocks))) - set(range(mine.start, mine.stop)):
        delattr(model.blocks, str(number))
    for name in (*(model.first_uses if index > 0 else ()), *(model.last_uses if index < count - 1 else ())):
        delattr(model, name)


def _shapes(config: Config, data: Data) -> tuple[Tensor, Tensor, Tensor]:
    """One sample's inputs, activations between blocks, and outputs; without memory."""
    with torch.device("meta"):
        model = models.build(config.model, data)
    blank: Rows = np.zeros((1, data.length + 1), np.uint16)
    if model.reads == "pictures":
        blank = Labelled(np.zeros((1, *data.picture), np.uint8), np.zeros(1, np.int64))
    inputs = model.prepare(blank, np.zeros(1, np.uint64), torch.device("cpu"))[0].to("meta")
    hidden = model.first(inputs)
    return inputs, hidden.detach(), model.last(hidden).detach()


def _joined(rows: Sequence[Rows]) -> Rows:
    if isinstance(rows[0], Labelled):
        pixels = np.concatenate([each.pixels for each in rows if isinstance(each, Labelled)])
        return Labelled(pixels, np.concatenate([each.labels for each in rows if isinstance(each, Labelled)]))
    return np.concatenate([each for each in rows if not isinstance(each, Labelled)])

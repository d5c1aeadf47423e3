"""Forward and backward passes of a model without a pipeline, one micro-batch after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from slipway.trainer.config.resolved import Config
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.models.model import Model, Rows, SampleNumbers
from slipway.trainer.step.microbatch import MicroBatch
from slipway.trainer.step.parallel import replicas
from slipway.trainer.step.precision import autocast


@dataclass(frozen=True)
class Sums:
    """Sums over samples of this rank. They stay on the device, because reading one waits for the device.

    A step reads all its numbers at once (`Engine.finish`).
    """

    losses: Tensor
    """In nats, summed over the targets: a scalar."""
    hits: Tensor
    """Number of targets that the model predicts right: a scalar."""

    @staticmethod
    def zero(device: torch.device) -> "Sums":
        return Sums(torch.zeros((), device=device), torch.zeros((), device=device, dtype=torch.int64))

    def plus(self, loss: Tensor, correct: Tensor) -> "Sums":
        return Sums(self.losses + loss.detach(), self.hits + correct)

    @property
    def loss(self) -> float:
        return float(self.losses)

    @property
    def correct(self) -> int:
        return int(self.hits)


@dataclass(frozen=True)
class StepTotals:
    """The sums of a step over all ranks."""

    loss: float
    """In nats, summed over the targets."""
    correct: float
    norm: float
    """Of the whole gradient, before it was clipped."""
    others: list[float]
    """The sums of the further numbers that each rank gave to `Engine.finish`."""


class Prepared(NamedTuple):
    """The tensors of a pass, on the device. If ranks divide sequences, they have this rank's positions."""

    inputs: Tensor
    targets: Tensor
    bounds: tuple[Tensor, ...]


def prepared(model: Model, rows: Rows, sample_ids: SampleNumbers, device: torch.device) -> Prepared:
    """The samples as the inputs of this rank's part of the model."""
    inputs, targets = model.prepare(rows, sample_ids, device)
    bounds = model.bounds(rows, device)
    if model.share is None:
        return Prepared(inputs, targets, bounds)
    cut = model.share.cut
    return Prepared(cut(inputs), cut(targets), tuple(map(cut, bounds)))


def score(model: Model, outputs: Tensor, targets: Tensor, real: int) -> tuple[Tensor, Tensor]:
    """The summed loss, and the number of right predictions, of the first `real` samples."""
    if real < len(outputs):  # not without blank samples: a slice adds a copy to the backward pass
        outputs = outputs[:real]
        targets = targets[:real]
    return model.loss(outputs, targets), model.correct(outputs.detach(), targets)


class Passes:
    """A model laid over the ranks without a pipeline."""

    def __init__(
        self,
        model: Model,
        called: nn.Module,
        config: Config,
        device: torch.device,
        timeline: Timeline,
    ) -> None:
        """`called` is the module that a pass calls: `model`, or DDP around it."""
        self._timeline = timeline
        self._model = model
        self.called = called
        self._device = device
        self._precision = config.run.precision

    def train(self, parts: Sequence[MicroBatch], weight: float) -> Sums:
        """Forward and backward: add the gradients of `weight` times the summed loss to those of the parameters.

        With the last part, data-parallel ranks average the gradients.
        """
        sums = Sums.zero(self._device)
        for index, part in enumerate(parts):
            with replicas.before_backward(self.called, last=index == len(parts) - 1):
                with self._timeline.part("forward"):
                    loss, correct = self._forward(self.called, part)
                with self._timeline.part("backward"):
                    torch.autograd.backward(loss * weight)
            sums = sums.plus(loss, correct)
        return sums

    def measure(self, parts: Sequence[MicroBatch], on_part: Callable[[], None]) -> Sums:
        """The sums without gradients; `on_part` is called after each part."""
        sums = Sums.zero(self._device)
        with torch.no_grad():
            for part in parts:
                sums = sums.plus(*self._forward(self._model, part))
                on_part()
        replicas.free_gathered_weights(self._model)
        return sums

    def _forward(self, called: nn.Module, part: MicroBatch) -> tuple[Tensor, Tensor]:
        batch = prepared(self._model, part.rows, part.sample_ids, self._device)
        with autocast(self._precision, self._device):
            outputs = called(batch.inputs, *batch.bounds)
        return score(self._model, outputs, batch.targets, part.real)

"""The planned step: the trainer's own engine does one step, and each tensor is counted by what it is for."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from slipway.trainer.models.model import Model, Rows
from slipway.trainer.node.world import World
from slipway.trainer.plan.live_bytes import LiveBytes
from slipway.trainer.plan.measure import PURPOSES, StageMeasure
from slipway.trainer.plan.question import Question
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.parallel import AXES


class PlannedEngine(Engine):
    """The trainer's engine; replicas do not average gradients."""

    def _replicated(self, called: nn.Module) -> nn.Module:
        """DDP's reducer needs real answers: `StageMeasure.with_copies` adds its buckets."""
        return called


class PlannedStep:
    """A new engine of one rank, with gradients and optimiser state as in the middle of a training."""

    def __init__(self, question: Question, world: World, live: LiveBytes) -> None:
        self._question = question
        self._world = world
        self._live = live
        live.purpose = "weights"
        self._engine = PlannedEngine(question.config(), world, question.data, draws=False)
        live.purpose = "optimizer"
        self._fill_optimizer()
        for part in self._engine.divided.parts:
            _tell_apart(part, live)

    def run(self, rows: Rows, count: int) -> StageMeasure:
        """The measure of a step over `count` samples."""
        live = self._live
        engine = self._engine
        live.assign(iter(engine.model.parameters()), "weights")
        live.assign(iter(engine.model.buffers()), "weights")
        live.assign(self._state(), "optimizer")
        live.purpose = "activations"
        live.restart()
        engine.accumulate(rows, np.arange(count, dtype=np.uint64))
        live.assign(self._gradients(), "gradients")
        live.purpose = "update"
        engine.clip()
        engine.update(0.0)
        live.assign(self._state(), "optimizer")
        return self._measured()

    def _measured(self) -> StageMeasure:
        mesh = self._world.mesh
        peaks = self._live.peaks()
        model = self._engine.model
        weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        state = sum(tensor.numel() * tensor.element_size() for tensor in self._state())
        state_bytes = sum(_bytes(tensor) for tensor in (*model.parameters(), *self._state()))
        gradients = sum(_bytes(parameter) for parameter in model.parameters() if parameter.requires_grad)
        return StageMeasure(
            stage=mesh.stage(self._world.rank),
            ranks=1,
            blocks=len(list(model.blocks.children())),
            peaks={at: {name: parts.get(name, 0) for name in PURPOSES} for at, parts in peaks.items()},
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            checkpoint=weights + state,
            trained=gradients,
            divided=state_bytes + gradients if self._question.layout.shard == "full" else 0,
            sent=self._sent(),
        )

    def _sent(self) -> Counter[str]:
        """The traffic by axis; process groups are identified by their names."""
        devices = self._engine.devices
        names = {str(devices[axis].get_group().group_name): axis for axis in AXES} if devices else {}
        share = self._engine.model.share
        if share:
            names[str(share.group.group_name)] = "context"
        sent: Counter[str] = Counter()
        for group, size in self._live.sent.items():
            sent[names.get(group, "world")] += size
        return sent

    def _fill_optimizer(self) -> None:
        """An update with gradients of zero makes the state that every later step finds.

        The sum is for DTensor: before the first of a kind it finds the result's shape with whole tensors, fake
        ones too.
        """
        for parameter in self._engine.model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
                parameter.grad += parameter.grad
        self._engine.update(0.0)

    def _state(self) -> Iterator[Tensor]:
        """The optimiser's tensors as large as parameters; counters of steps are not worth a line."""
        for state in self._engine.optimizer.state.values():
            yield from (tensor for tensor in state.values() if isinstance(tensor, Tensor) and tensor.dim())

    def _gradients(self) -> Iterator[Tensor]:
        return (parameter.grad for parameter in self._engine.model.parameters() if parameter.grad is not None)


def _tell_apart(model: Model, live: LiveBytes) -> None:
    """Set the purpose of new storages: in the blocks, from `last` to its input's gradient, and in the backward pass."""
    first = model.first
    through = model.through
    last = model.last

    def now(purpose: str) -> None:
        live.purpose = purpose

    def watched_first(inputs: Tensor) -> Tensor:
        now("activations")
        return first(inputs)

    def watched_through(x: Tensor, *begins: Tensor) -> Tensor:
        now("activations")
        x = through(x, *begins)
        if x.requires_grad:
            x.register_hook(lambda _: now("working"))  # type: ignore[no-untyped-call]
        return x

    def watched_last(x: Tensor) -> Tensor:
        now("logits")
        return last(x)

    hooked_model: Any = model
    hooked_model.first = watched_first
    hooked_model.through = watched_through
    hooked_model.last = watched_last


def _bytes(tensor: Tensor) -> int:
    """Those of this rank's part."""
    local: Tensor = tensor.to_local() if is_divided(tensor) else tensor
    return local.numel() * local.element_size()

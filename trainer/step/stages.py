"""Stages of a pipeline: which parts of the model a rank keeps, and each part as one module.

A rank has one stage, or several that are not neighbours (`layout.stages_per_rank`): stages are assigned round-robin.
`slipway.trainer.step.pipeline`, which runs the stages, is a module of its own because PyTorch's schedules import its
compiler.
"""

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from slipway.trainer.config.sections import Precision
from slipway.trainer.loading.order import rank_slice
from slipway.trainer.models.model import Model
from slipway.trainer.step.precision import autocast


class StageModule(nn.Module):
    """A stage's part of the model as one module: its input goes through the blocks of this stage."""

    def __init__(self, model: Model, precision: Precision, first: bool, last: bool) -> None:
        super().__init__()
        self.model = model
        self.first = first
        self.last = last
        self._precision = precision

    def forward(self, x: Tensor, begins: Tensor | None = None) -> Tensor:
        """The first stage takes inputs, the last one returns outputs; stages pass each other activations in fp32.

        begins: the result of the model's `bounds` on every stage; None if there is none.
        """
        with autocast(self._precision, x.device):
            x = self.model.first(x) if self.first else x
            x = self.model.through(x) if begins is None else self.model.through(x, begins)
            x = self.model.last(x) if self.last else x
        return x.float()


def stages_of(rank: int, ranks: int, stages_per_rank: int) -> range:
    """The numbers of a rank's stages, if every rank of the pipeline has `stages_per_rank`."""
    return range(rank, ranks * stages_per_rank, ranks)


def blocks_of(layers: int, numbers: Sequence[int], count: int) -> list[int]:
    """The blocks of these stages, of `count` stages of a model with this number of layers."""
    return [block for number in numbers for block in _blocks(layers, number, count)]


def keep_stages(model: Model, numbers: Sequence[int], count: int) -> None:
    """Remove everything from the model that the stages `numbers` of `count` do not need; names stay."""
    assert not set(model.first_uses) & set(model.last_uses)
    for block in set(range(len(model.blocks))) - set(blocks_of(len(model.blocks), numbers, count)):
        delattr(model.blocks, str(block))
    if 0 not in numbers:
        for name in model.first_uses:
            delattr(model, name)
    if count - 1 not in numbers:
        for name in model.last_uses:
            delattr(model, name)


def stage_model(model: Model, layers: int, number: int, count: int) -> Model:
    """The model of the stage `number` alone; it shares blocks and parameters with `model`.

    `model` has the modules of several stages of `count` (`keep_stages`), of `layers` blocks. See `share_parameters`.
    """
    part = copy.copy(model)
    others: set[str] = set()
    if number > 0:
        others |= set(model.first_uses)
    if number < count - 1:
        others |= set(model.last_uses)
    part._modules = {name: module for name, module in model._modules.items() if name not in others}
    part._parameters = {name: parameter for name, parameter in model._parameters.items() if name not in others}
    own_blocks = set(map(str, _blocks(layers, number, count)))
    part.blocks = copy.copy(model.blocks)
    part.blocks._modules = {name: block for name, block in model.blocks._modules.items() if name in own_blocks}
    return part


def share_parameters(model: Model, parts: Sequence[Model]) -> None:
    """Set the parameters that `model` has outside its modules to those of its `parts`.

    Division and allocation replace these parameters in the parts alone.
    """
    for part in parts:
        model._parameters.update(part._parameters)


def _blocks(layers: int, number: int, count: int) -> range:
    share = rank_slice(layers, number, count)
    return range(share.start, share.stop)

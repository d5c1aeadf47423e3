"""Stages of a pipeline: which part of the model a stage keeps, and that part as one module.

Apart from `trainer.step.pipeline`, which runs the stages, because PyTorch's schedules import its compiler.
"""

from torch import Tensor, nn

from trainer.config.sections import Precision
from trainer.loading.order import rank_slice
from trainer.models.model import Model
from trainer.step.precision import autocast


class StageModule(nn.Module):
    """A stage's part of the model as one module: its input goes through the blocks of this rank."""

    def __init__(self, model: Model, precision: Precision, first: bool, last: bool) -> None:
        super().__init__()
        self.model, self.first, self.last, self._precision = model, first, last, precision

    def forward(self, x: Tensor, begins: Tensor | None = None) -> Tensor:
        """The first stage takes inputs, the last one returns outputs; between stages pass activations, in fp32.

        begins: on every stage, what the model's `bounds` gave, where it did.
        """
        with autocast(self._precision, x.device):
            x = self.model.first(x) if self.first else x
            x = self.model.through(x) if begins is None else self.model.through(x, begins)
            x = self.model.last(x) if self.last else x
        return x.float()


def keep_stage(model: Model, index: int, count: int) -> None:
    """Remove everything from the model that stage `index` of `count` does not need; names stay."""
    assert not set(model.first_uses) & set(model.last_uses)
    mine = rank_slice(len(model.blocks), index, count)
    for number in set(range(len(model.blocks))) - set(range(mine.start, mine.stop)):
        delattr(model.blocks, str(number))
    for name in (*(model.first_uses if index > 0 else ()), *(model.last_uses if index < count - 1 else ())):
        delattr(model, name)

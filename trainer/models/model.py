"""What the trainer asks of a model. A new model is one file with a class that answers this."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.data import Tokens
from trainer.pictures import Labelled
from trainer.shapes import Data, Reads

__all__ = ["Data", "Model", "Places", "Reads", "Rows", "part"]

Rows = Tokens | Labelled
"""Samples as they lie on disk: windows of tokens [n, length + 1], or pictures with their labels."""
Places = npt.NDArray[np.uint64]
"""Where samples stand in the training's whole sequence of samples (or in the validation split): [n].

Whatever a model draws for a sample (a mask, a crop) it draws from its place and the seed, so that the number of
ranks and restarts change nothing.
"""


def part(rows: Rows, start: int, count: int) -> Rows:
    """`count` samples of `rows` from `start` on."""
    which = slice(start, start + count)
    return Labelled(rows.pixels[which], rows.labels[which]) if isinstance(rows, Labelled) else rows[which]


class Model(nn.Module):
    """A network with its own task: how samples become inputs and targets, and what it loses on them.

    Its forward pass is `first`, then `through` the blocks, then `last`, so that a stage of a pipeline runs its part
    alone: the first stage calls `first`, each `through` with `blocks` cut down to its own, the last one `last`.
    """

    reads: ClassVar[Reads]
    first_uses: ClassVar[tuple[str, ...]]
    """The submodules and parameters of its own that `first` needs, by name; no other part of the model does."""
    last_uses: ClassVar[tuple[str, ...]]
    """Those that `last` needs. What is named in both is shared, and such a model cannot be cut into stages."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Matrices of a block that tensor parallelism divides by columns: the first of a pair, by name in the block. What
    they are the first of (attention, feed-forward) takes their input as its first argument."""
    rows: ClassVar[tuple[str, ...]] = ()
    """Matrices that it divides by rows: the last of a pair."""
    causal: ClassVar[bool] = False
    """Whether each target is predicted from what comes before it alone: the loss is then the cost of coding a text,
    and a sequence may be shorter than the rest."""
    recomputes: ClassVar[bool] = True
    """Whether a block may be run again for the backward pass; not where it keeps running statistics."""
    blocks: nn.ModuleList
    """The repeated parts, called one after the other: the unit of sharding, recomputation, compilation, pipelining."""

    def first(self, inputs: Tensor) -> Tensor:
        """What the first block takes: the inputs embedded."""
        raise NotImplementedError

    def through(self, x: Tensor) -> Tensor:
        """`x` through the blocks that are here."""
        for block in self.blocks:
            x = block(x)
        return x

    def last(self, x: Tensor) -> Tensor:
        """The outputs, from what the last block gives."""
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.through(self.first(inputs)))

    @property
    def targets_per_sample(self) -> int:
        """How many predictions a sample asks for: the loss is their mean over the global batch."""
        raise NotImplementedError

    @property
    def flops_per_sample(self) -> int:
        """Floating-point operations of forward and backward for one sample."""
        raise NotImplementedError

    def prepare(self, rows: Rows, places: Places, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these samples, on `device`; the first dimension of both is the sample."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the targets' losses, in nats and in fp32."""
        raise NotImplementedError

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many targets are the likeliest prediction."""
        raise NotImplementedError

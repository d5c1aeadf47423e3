"""The interface of a model, which every network implements."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway.trainer.config.shapes import Data, Reads
from slipway.trainer.data.documents import Documented
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.data.sequences import Tokens
from slipway.trainer.models.initial_values import InitialValues
from slipway.trainer.models.sequence_share import SequenceShare

__all__ = ["Data", "Model", "Reads", "Rows", "SampleNumbers"]

Rows = Tokens | Documented | Labelled
"""Samples as they are on disk: windows of tokens [n, length + 1], alone or with the bounds of their documents, or
pictures with their labels."""
SampleNumbers = npt.NDArray[np.uint64]
"""The positions of samples in the training's whole sequence of samples (or in the validation split): [n].

A model draws at random for a sample (a mask, a crop) from its position and the seed only, so that the number of ranks
and restarts change nothing.
"""
NO_TARGET = -100
"""A target that counts in no loss."""


class Stream:
    """The residual stream between the blocks of a model, [batch, positions, width]: here one rank has all positions.

    Tensor parallelism divides the stream over the sequence (`slipway.trainer.step.parallel.divided_stream`), so that
    the ranks that share matrices do not repeat norms and sums, nor keep their results. A model asks its stream which
    positions it has.
    """

    def position_ids(self, length: int, device: torch.device) -> Tensor:
        """The positions of a sequence of `length` that this rank has: [positions]."""
        return torch.arange(length, device=device)

    def positions(self, x: Tensor) -> int:
        """The positions of the whole sequence, of which `x` has this rank's."""
        return x.shape[1]

    def own(self, x: Tensor) -> Tensor:
        """This rank's positions of `x`, which every rank has computed whole."""
        return x

    def all_positions(self, x: Tensor) -> Tensor:
        """All positions, from this rank's; every rank computes the same from them."""
        return x


class Vocabulary:
    """The ends of a model of tokens (rows of the embedding, logits, what they say of the targets): here on one rank.

    Tensor parallelism divides these matrices over the vocabulary (`slipway.trainer.step.parallel.divided_vocabulary`):
    no rank then has the logits of all tokens.
    """

    def embedded(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """The rows of tokens [batch, length], at this rank's positions of the stream: [batch, positions, width]."""
        rows: Tensor = embedding(tokens)
        return rows

    def logits(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [batch, positions, width] times `weight` transposed: [batch, length, tokens], the tokens of this rank."""
        return F.linear(x, weight, bias)

    def own(self, logits: Tensor) -> Tensor:
        """This rank's tokens of the logits of all."""
        return logits

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum of the cross-entropies of targets [batch, length], in nats and in fp32."""
        flat = logits.float().flatten(0, 1)
        return F.cross_entropy(flat, targets.flatten(), reduction="sum", ignore_index=NO_TARGET)

    def correct(self, logits: Tensor, targets: Tensor) -> Tensor:
        """How many targets no token has a higher logit than."""
        # amax takes a fifth of the time of argmax.
        there = targets.clamp(min=0).unsqueeze(-1)
        likeliest = logits.gather(-1, there).squeeze(-1) == logits.amax(-1)
        return (likeliest & (targets != NO_TARGET)).sum()


class Model(nn.Module):
    """A network with its task: how samples become inputs and targets, and the loss.

    Its forward pass is `first`, then `through` the blocks, then `last`, so that a stage of a pipeline can
    run its part alone: the first stage calls `first`, each stage `through` with its own blocks, the last one `last`.
    """

    reads: ClassVar[Reads]
    first_uses: tuple[str, ...]
    """The names of submodules and parameters, outside the blocks, that `first` needs."""
    last_uses: tuple[str, ...]
    """The names of those that `last` needs. A model with a name in both cannot be cut into stages."""
    columns: tuple[str, ...] = ()
    """Matrices of a block that tensor parallelism divides by columns: the first of a pair, by name in the block. The
    submodule of the pair (attention, feed-forward) takes their input as its first argument."""
    rows: tuple[str, ...] = ()
    """Matrices of a block that tensor parallelism divides by rows: the last of a pair."""
    shared: tuple[str, ...] = ()
    """Submodules of a block whose weights each rank of tensor parallelism uses for its own heads alone: the sum of the
    ranks' gradients is the gradient."""
    token_rows: tuple[str, ...] = ()
    """Parameters outside the blocks with a row for each token, which tensor parallelism divides over the vocabulary.
    They have equally many rows, and `first`, `last`, `loss` and `correct` use them through `vocabulary` alone."""
    on_stream: tuple[str, ...] = ()
    """Submodules outside the blocks that `first` and `last` call for the positions of this rank alone."""
    stream: Stream
    """Which positions of the residual stream this rank has."""
    vocabulary: Vocabulary
    """How the rows of tokens are used; a layout that divides them sets another, as it does with `stream`."""
    causal: ClassVar[bool] = False
    """Whether each target is predicted only from what comes before it: the loss is then the cost of coding a text, and
    sequences may have different lengths."""
    recomputes: ClassVar[bool] = True
    """Whether a block may run again for the backward pass; False for one that keeps running statistics."""
    reads_documents: bool = False
    """Whether samples must come with the bounds of their documents."""
    share: SequenceShare | None = None
    """The part of each sequence that this rank has; None for all. Only models whose shape says so are given one."""
    blocks: nn.ModuleList
    """The repeated parts, called in turn: the unit of sharding, recomputation, compilation and pipelines."""

    def __init__(self) -> None:
        super().__init__()
        self.stream, self.vocabulary = Stream(), Vocabulary()

    def initial(self, name: str, tensor: Tensor) -> InitialValues | None:
        """The values that the parameter or buffer `name`, whose whole shape `tensor` has, begins with.

        A model that gives this rule for all its names is built without memory, and each rank draws its own part: what
        the constructor draws or computes then counts for nothing. A model that does not override this method is drawn
        whole by its constructor, from torch's generator, on the host of every rank, also when it is restored.
        """
        return None

    def first(self, inputs: Tensor) -> Tensor:
        """The input of the first block: the embedded inputs."""
        raise NotImplementedError

    def through(self, x: Tensor, begins: Tensor | None = None) -> Tensor:
        """`x` after the blocks of this rank; `begins` is what `bounds` gave for these samples."""
        for block in self.blocks:
            x = block(x)
        return x

    def last(self, x: Tensor) -> Tensor:
        """The outputs, computed from the output of the last block."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, *begins: Tensor) -> Tensor:
        """The outputs; `begins` is there where `bounds` gives it."""
        return self.last(self.through(self.first(inputs), *begins))

    @property
    def stream_length(self) -> int:
        """Positions of the residual stream [batch, positions, width], for tensor parallelism to divide between blocks.

        Then all that is in a block beside the pairs (norms, sums) works on each position alone, and `first`, `through`
        and `last` ask `stream` for positions. 0 for a model of which this is not true: each rank has the whole stream.
        """
        return 0

    @property
    def targets_per_sample(self) -> int:
        """How many targets a sample has: the loss is the mean over the targets of the global batch."""
        raise NotImplementedError

    @property
    def flops_per_sample(self) -> int:
        """Floating-point operations of forward and backward for one sample."""
        raise NotImplementedError

    def prepare(self, rows: Rows, sample_ids: SampleNumbers, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these samples, on `device`; the first dimension of both is the sample."""
        raise NotImplementedError

    def bounds(self, rows: Rows, device: torch.device) -> tuple[Tensor, ...]:
        """What `forward` needs beside the inputs: empty, or one tensor.

        That is, for each input token, the place in its sequence at which its document begins: [batch, length].
        """
        return ()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the targets' losses, in nats and in fp32."""
        raise NotImplementedError

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many targets the likeliest prediction matches."""
        raise NotImplementedError

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
from slipway.trainer.models.context_parallel import SequenceShare
from slipway.trainer.models.initial_values import InitialValues

__all__ = ["Data", "Model", "Reads", "Rows", "SampleNumbers"]

Rows = Tokens | Documented | Labelled
"""Samples as they are on disk: windows of tokens [n, length + 1], alone or with the bounds of their documents, or
pictures with their labels."""
SampleNumbers = npt.NDArray[np.uint64]
"""The positions of samples in the training's whole sequence of samples (or in the validation split): [n].

A model's random draws for a sample (a mask, a crop) depend on its position and the seed only, so the number of ranks
and restarts do not change them.
"""
NO_TARGET = -100
"""A target that the loss ignores."""


class Stream:
    """The residual stream between the blocks of a model, [batch, positions, width]: here one rank has all positions.

    Tensor parallelism divides the stream over the sequence (`slipway.trainer.step.parallel.divided_stream`), so that
    ranks that share matrices neither repeat norms and sums nor store all their results. A model asks its stream for its
    positions.
    """

    def position_ids(self, length: int, device: torch.device) -> Tensor:
        """This rank's positions of a sequence of `length`: [positions]."""
        return torch.arange(length, device=device)

    def positions(self, x: Tensor) -> int:
        """The number of positions of the whole sequence; `x` has this rank's part."""
        return x.shape[1]

    def own(self, x: Tensor) -> Tensor:
        """This rank's positions of `x`, which every rank has whole."""
        return x

    def all_positions(self, x: Tensor) -> Tensor:
        """All positions, from the ranks' parts; every rank then computes the same with them."""
        return x


class Vocabulary:
    """The ends of a model of tokens (embedding, logits and loss): here on one rank.

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
        """This rank's tokens, from the logits of all tokens."""
        return logits

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum of the cross-entropies of targets [batch, length], in nats and in fp32."""
        flat = logits.float().flatten(0, 1)
        return F.cross_entropy(flat, targets.flatten(), reduction="sum", ignore_index=NO_TARGET)

    def correct(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The number of targets with the highest logit."""
        # amax takes a fifth of the time of argmax.
        column = targets.clamp(min=0).unsqueeze(-1)
        is_right = logits.gather(-1, column).squeeze(-1) == logits.amax(-1)
        return (is_right & (targets != NO_TARGET)).sum()


class Model(nn.Module):
    """A network with its task: the conversion of samples to inputs and targets, and the loss.

    Its forward pass is `first`, then `through` the blocks, then `last`. So a stage of a pipeline can run its part
    alone: the first stage calls `first`, each stage `through` with its own blocks, and the last one `last`.
    """

    reads: ClassVar[Reads]
    first_uses: tuple[str, ...]
    """The names of submodules and parameters, outside the blocks, that `first` needs."""
    last_uses: tuple[str, ...]
    """The same for `last`. A model with a name in both cannot be cut into stages."""
    columns: tuple[str, ...] = ()
    """Matrices of a block that tensor parallelism divides by columns: the first of a pair, by name in the block. The
    submodule of the pair (attention, feed-forward) takes their input as its first argument."""
    rows: tuple[str, ...] = ()
    """Matrices of a block that tensor parallelism divides by rows: the last of a pair."""
    shared: tuple[str, ...] = ()
    """Submodules of a block whose weights each rank of tensor parallelism uses for its own heads alone: their gradient
    is the sum of the ranks' gradients."""
    token_rows: tuple[str, ...] = ()
    """Parameters outside the blocks with a row for each token, which tensor parallelism divides over the vocabulary.
    They have equally many rows, and `first`, `last`, `loss` and `correct` use them through `vocabulary` alone."""
    on_stream: tuple[str, ...] = ()
    """Submodules outside the blocks that `first` and `last` call for the positions of this rank alone."""
    stream: Stream
    """This rank's positions of the residual stream."""
    vocabulary: Vocabulary
    """The use of rows of tokens. A layout that divides them replaces it, as it does with `stream`."""
    causal: ClassVar[bool] = False
    """Whether each target is predicted only from the tokens before it: the loss is then the cost of coding a text, and
    sequences may have different lengths."""
    recomputes: ClassVar[bool] = True
    """Whether a block may run again for the backward pass; False for a block with running statistics."""
    reads_documents: bool = False
    """Whether samples must come with the bounds of their documents."""
    share: SequenceShare | None = None
    """This rank's part of each sequence; None for whole sequences. Only shapes with `shares_sequences` support it."""
    blocks: nn.ModuleList
    """The repeated parts, called in turn: the unit of sharding, recomputation, compilation and pipelines."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream()
        self.vocabulary = Vocabulary()

    def initial(self, name: str, tensor: Tensor) -> InitialValues | None:
        """The rule of the initial values of the parameter or buffer `name`; `tensor` has its whole shape.

        A model with a rule for all its names is built without memory, and each rank draws its own part; values from the
        constructor are then ignored. A model that does not override this method is drawn whole by its constructor, from
        torch's generator, on the host of every rank, even when it is restored.
        """
        return None

    def first(self, inputs: Tensor) -> Tensor:
        """The input of the first block: the embedded inputs."""
        raise NotImplementedError

    def through(self, x: Tensor, begins: Tensor | None = None) -> Tensor:
        """`x` after the blocks of this rank; `begins` is the result of `bounds` for these samples."""
        for block in self.blocks:
            x = block(x)
        return x

    def last(self, x: Tensor) -> Tensor:
        """The outputs, computed from the output of the last block."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, *begins: Tensor) -> Tensor:
        """The outputs; `begins` is the result of `bounds`."""
        return self.last(self.through(self.first(inputs), *begins))

    @property
    def stream_length(self) -> int:
        """Positions of the residual stream [batch, positions, width], for tensor parallelism to divide between blocks.

        All parts of a block beside the pairs (norms, sums) must then work on each position alone, and `first`,
        `through` and `last` must ask `stream` for positions. 0 for any other model: each rank has the whole stream.
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
        """The further arguments of `forward`: none, or one tensor.

        It has, for each input token, the position in its sequence at which its document begins: [batch, length].
        """
        return ()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the targets' losses, in nats and in fp32."""
        raise NotImplementedError

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The number of targets that the model predicts right."""
        raise NotImplementedError

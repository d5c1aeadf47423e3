"""The vocabulary divided over the ranks that share matrices: no rank ever has the logits of all tokens.

Each rank has consecutive rows of the embedding and of the head. The loss needs three numbers of a target from all
ranks: the largest logit, the target's own, and the sum of the exponentials (Megatron-LM, arXiv:1909.08053, section 3).
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from slipway.trainer.models.model import NO_TARGET, Vocabulary
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.parallel.divided_stream import DividedStream


class DividedVocabulary(Vocabulary):
    """The vocabulary of a rank that has `count` tokens, from number `begin` on."""

    def __init__(self, stream: DividedStream, begin: int, count: int) -> None:
        self._stream = stream
        self.begin = begin
        self.count = count

    def embedded(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        rows, is_foreign = _own_rows(tokens, self.begin, self.count)
        vectors = F.embedding(rows, local(embedding.weight)).masked_fill(is_foreign.unsqueeze(-1), 0)
        return self._stream.leave(vectors)

    def logits(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(self._stream.enter(x), local(weight), None if bias is None else local(bias))

    def own(self, logits: Tensor) -> Tensor:
        return logits[..., self.begin : self.begin + self.count]

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        group = self._stream.division.group
        loss: Tensor = _CrossEntropy.apply(logits.flatten(0, 1), targets.flatten(), self.begin, group)  # type: ignore[no-untyped-call]
        return loss

    def correct(self, logits: Tensor, targets: Tensor) -> Tensor:
        flat = targets.flatten()
        highest, own = _highest_and_own(logits.flatten(0, 1), flat, self.begin, self._stream.division.group)
        return ((own == highest) & (flat != NO_TARGET)).sum()


class _CrossEntropy(torch.autograd.Function):
    """Logits [targets, tokens of this rank], targets [targets]: the sum of the losses, the same on every rank.

    It saves the logits, and one number for each target; the backward pass computes the gradient in one fp32 buffer.
    """

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor, begin: int, group: ProcessGroup) -> Tensor:
        highest, own = _highest_and_own(logits, targets, begin, group)
        total = (logits - highest.unsqueeze(-1)).exp_().sum(-1)
        dist.all_reduce(total, group=group)
        normalizer = highest + total.log()
        context.save_for_backward(logits, targets, normalizer)
        context.begin = begin
        return (normalizer - own).masked_fill(targets == NO_TARGET, 0).sum()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, normalizer = context.saved_tensors
        grad_logits = (logits - normalizer.unsqueeze(-1)).exp_()  # each token's probability, in fp32
        column, is_foreign = _own_rows(targets, context.begin, logits.shape[-1])
        row = torch.arange(len(targets), device=targets.device)
        grad_logits[row, column] -= (~is_foreign).to(grad_logits.dtype)
        grad_logits.mul_((gradient * (targets != NO_TARGET)).unsqueeze(-1))
        return grad_logits.to(logits.dtype), None, None, None


def local(weight: Tensor) -> Tensor:
    """This rank's part of a weight; gradients pass."""
    return weight.to_local() if is_divided(weight) else weight


def _own_rows(tokens: Tensor, begin: int, count: int) -> tuple[Tensor, Tensor]:
    """Each token's row on this rank, and whether another rank has it; the row is then 0."""
    rows = tokens - begin
    is_foreign = (rows < 0) | (rows >= count)
    return rows.masked_fill(is_foreign, 0), is_foreign


def _highest_and_own(logits: Tensor, targets: Tensor, begin: int, group: ProcessGroup) -> tuple[Tensor, Tensor]:
    """For each target, the highest logit of all tokens and the target's own, in fp32; one all-reduce."""
    column, is_foreign = _own_rows(targets, begin, logits.shape[-1])
    own = logits.gather(-1, column.unsqueeze(-1)).squeeze(-1).float()
    both = torch.stack([logits.amax(-1).float(), own.masked_fill(is_foreign, -torch.inf)])
    dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
    return both[0], both[1]

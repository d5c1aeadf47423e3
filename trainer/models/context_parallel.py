"""A share of sequences: one rank's part of each sequence (context parallelism).

All operations but attention work on each token alone. For attention, each rank gathers the keys and values of all
ranks, as in Llama 3 (arXiv:2407.21783, section 3.3.2): with grouped heads they are small beside the activations.

A sequence is cut into twice as many pieces as ranks, and a rank has a piece and its mirror image: of 8 pieces, rank 1
of 4 has 1 and 6. So under a causal mask, all ranks' queries see equally many keys.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class SequenceShare:
    """The part of each sequence that this rank has among `ranks` of the process group `group`."""

    def __init__(self, rank: int, ranks: int, group: dist.ProcessGroup) -> None:
        self._rank = rank
        self.ranks = ranks
        self.group = group

    def cut(self, x: Tensor) -> Tensor:
        """[batch, length, ...] to this rank's tokens, [batch, length / ranks, ...]."""
        first, last = self._pieces(self._rank, x.shape[1])
        return torch.cat([x[:, first], x[:, last]], 1)

    def position_ids(self, own: int, device: torch.device) -> Tensor:
        """The positions of this rank's `own` tokens in their sequence: [own], ascending."""
        return self._places_of(self._rank, own * self.ranks, device)

    def gathered_places(self, own: int, device: torch.device) -> Tensor:
        """The positions of the tokens in the order of `gathered`: [own x ranks]."""
        return torch.cat([self._places_of(rank, own * self.ranks, device) for rank in range(self.ranks)])

    def gathered(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all ranks: [batch, heads, own, features] to [batch, heads, own x ranks, features]."""
        both = torch.stack([key, value]).movedim(3, 0)
        every: Tensor = _Gathered.apply(both, self.group, self.ranks)  # type: ignore[no-untyped-call]
        keys, values = every.movedim(0, 3)
        return keys, values

    def _places_of(self, rank: int, length: int, device: torch.device) -> Tensor:
        pieces = (torch.arange(piece.start, piece.stop, device=device) for piece in self._pieces(rank, length))
        return torch.cat(list(pieces))

    def _pieces(self, rank: int, length: int) -> tuple[slice, slice]:
        size = length // (2 * self.ranks)
        mirrored = 2 * self.ranks - 1 - rank
        return slice(rank * size, (rank + 1) * size), slice(mirrored * size, (mirrored + 1) * size)


class _Gathered(torch.autograd.Function):
    """The tensors of all ranks along the first dimension; the gradient of each is the sum of all ranks' gradients."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup, ranks: int) -> Tensor:
        context.group = group
        context.ranks = ranks
        every = x.new_empty(len(x) * ranks, *x.shape[1:])
        dist.all_gather_single(every, x.contiguous(), group=group)
        return every

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        own = gradient.new_empty(len(gradient) // context.ranks, *gradient.shape[1:])
        dist.reduce_scatter_single(own, gradient.contiguous(), group=context.group)
        return own, None, None

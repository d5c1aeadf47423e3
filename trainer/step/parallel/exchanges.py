"""Differentiable collectives between the ranks of a tensor-parallel group.

A tensor is whole (the same on every rank), a part (each rank's positions, dimension 1), or a share of a sum. Each
function's docstring names its input and its result; the gradient takes the reverse way (Korthikanti et al.,
arXiv:2205.05198, section 4.2.2). Parts are equally long: a sequence that does not divide evenly is padded with zeros,
which `length` cuts off again.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed import _functional_collectives as collectives

SEQUENCE = 1
"""The dimension of positions."""


@dataclass(frozen=True)
class Division:
    """The division of a sequence over the ranks of a group."""

    group: ProcessGroup
    length: int
    """Positions of the whole sequence; 0 if every rank has all of them."""

    @property
    def ranks(self) -> int:
        return self.group.size()

    @property
    def size(self) -> int:
        """Positions of a rank, with padding."""
        return -(-self.length // self.ranks)

    @property
    def begin(self) -> int:
        """The first position of this rank."""
        return self.group.rank() * self.size


def gathered(part: Tensor, division: Division) -> Tensor:
    """From parts to whole. Each rank then computes a share of the work, so gradients are shares of a sum."""
    return _apply(_Gathered, part, division)


def scattered(share: Tensor, division: Division) -> Tensor:
    """From shares of a sum to this rank's part of it."""
    return _apply(_Scattered, share, division)


def joined(part: Tensor, division: Division) -> Tensor:
    """From parts to whole. Every rank then computes the same, so gradients are whole."""
    return _apply(_Joined, part, division)


def cut(full_tensor: Tensor, division: Division) -> Tensor:
    """From a whole tensor, which every rank has computed alike, to this rank's part of it."""
    return _apply(_Cut, full_tensor, division)


def copied(full_tensor: Tensor, division: Division) -> Tensor:
    """A whole tensor unchanged. Each rank then computes a share of the work, so gradients are shares of a sum."""
    return _apply(_Copied, full_tensor, division)


def summed(share: Tensor, division: Division) -> Tensor:
    """From shares of a sum to the whole sum."""
    return _apply(_Summed, share, division)


def _apply(exchange: type[torch.autograd.Function], tensor: Tensor, division: Division) -> Tensor:
    out: Tensor = exchange.apply(tensor, division)  # type: ignore[no-untyped-call]
    return out


def _all(part: Tensor, division: Division) -> Tensor:
    """All ranks' parts, one after the other."""
    full_tensor = collectives.all_gather_single(part.contiguous(), gather_dim=SEQUENCE, group=division.group)
    return _waited(full_tensor)[:, : division.length]


def _sum_of_part(share: Tensor, division: Division) -> Tensor:
    """This rank's part of the sum of all ranks' shares."""
    filled = _filled(share, division)
    return _waited(collectives.reduce_scatter_single(filled, "sum", scatter_dim=SEQUENCE, group=division.group))


def _sum(share: Tensor, division: Division) -> Tensor:
    return _waited(collectives.all_reduce(share.contiguous(), "sum", division.group))


def _part(full_tensor: Tensor, division: Division) -> Tensor:
    return _filled(full_tensor, division)[:, division.begin : division.begin + division.size].contiguous()


def _filled(full_tensor: Tensor, division: Division) -> Tensor:
    """`full_tensor`, padded with zeros at the end of the sequence, so that all parts are equally long."""
    blank = division.size * division.ranks - division.length
    if blank:
        full_tensor = F.pad(full_tensor, (0, 0) * (full_tensor.dim() - SEQUENCE - 1) + (0, blank))
    return full_tensor.contiguous()


def _waited(tensor: Tensor) -> Tensor:
    return collectives.wait_tensor(tensor)  # type: ignore[no-untyped-call, no-any-return]


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, part: Tensor, division: Division) -> Tensor:
        context.division = division
        return _all(part, division)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sum_of_part(gradient, context.division), None


class _Scattered(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, share: Tensor, division: Division) -> Tensor:
        context.division = division
        return _sum_of_part(share, division)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all(gradient, context.division), None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, part: Tensor, division: Division) -> Tensor:
        context.division = division
        return _all(part, division)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _part(gradient, context.division), None


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, full_tensor: Tensor, division: Division) -> Tensor:
        context.division = division
        return _part(full_tensor, division)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all(gradient, context.division), None


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, full_tensor: Tensor, division: Division) -> Tensor:
        context.division = division
        return full_tensor.view_as(full_tensor)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sum(gradient, context.division), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, share: Tensor, division: Division) -> Tensor:
        context.division = division
        return _sum(share, division)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None

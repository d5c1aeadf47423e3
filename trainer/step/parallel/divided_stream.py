"""The residual stream divided over the sequence, between the ranks that share matrices (arXiv:2205.05198)."""

from dataclasses import replace

import torch
from torch import Tensor

from slipway.trainer.models.model import Stream
from slipway.trainer.models.norms import multiplied_type
from slipway.trainer.step.parallel import exchanges
from slipway.trainer.step.parallel.exchanges import Division


class DividedStream(Stream):
    """The stream of a rank that has some of the positions; all of them if the model has no length of its own."""

    def __init__(self, division: Division, summed: frozenset[str]) -> None:
        """`summed`: the names of the parameters of whose gradient each rank computes a share."""
        self.division = division
        self.summed = summed

    def take_length(self, length: int) -> None:
        """Divide sequences of `length` positions from now on, if sequences are divided at all."""
        if self.division.length:
            self.division = replace(self.division, length=length)

    def position_ids(self, length: int, device: torch.device) -> Tensor:
        """Padding at the end has the index of the last position; nothing reads it."""
        if not self.division.length:
            return super().position_ids(length, device)
        first = self.division.begin
        return torch.arange(first, first + self.division.size, device=device).clamp(max=length - 1)

    def positions(self, x: Tensor) -> int:
        return self.division.length or x.shape[1]

    def own(self, x: Tensor) -> Tensor:
        return exchanges.cut(x, self.division) if self.division.length else x

    def all_positions(self, x: Tensor) -> Tensor:
        return exchanges.joined(x, self.division) if self.division.length else x

    def enter(self, x: Tensor) -> Tensor:
        """All positions, as the input of divided matrices; they travel in the type that the matrices multiply."""
        x = x.to(multiplied_type(x))
        return exchanges.gathered(x, self.division) if self.division.length else exchanges.copied(x, self.division)

    def leave(self, share: Tensor) -> Tensor:
        """This rank's positions of the sum of all ranks' shares, of which matrices that are divided give one."""
        if self.division.length:
            return exchanges.scattered(share, self.division)
        return exchanges.summed(share, self.division)

"""The residual stream between the blocks of a model: [batch, positions, width]; here one rank has all its positions.

Tensor parallelism divides the stream over the sequence (`slipway.trainer.step.parallel.divided_stream`), so that the
ranks that share matrices do not repeat norms and sums, nor keep their results. A model asks its stream which positions
it has.
"""

import torch
from torch import Tensor


class Stream:
    """All positions on one rank."""

    def places(self, length: int, device: torch.device) -> Tensor:
        """The positions of a sequence of `length` that this rank has: [positions]."""
        return torch.arange(length, device=device)

    def positions(self, x: Tensor) -> int:
        """The positions of the whole sequence, of which `x` has this rank's."""
        return x.shape[1]

    def own(self, x: Tensor) -> Tensor:
        """This rank's positions of `x`, which every rank has computed whole."""
        return x

    def whole(self, x: Tensor) -> Tensor:
        """All positions, from this rank's; every rank computes the same from them."""
        return x

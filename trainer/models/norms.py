"""Norms in mixed precision: sums are fp32, and the output has the type that matrices multiply in.

The residual stream is fp32 in every precision. Left to autocast, each matrix after a norm would cast the norm's fp32
output for itself, and keep its own copy for the backward pass: three for queries, keys and values. These norms cast
once. PyTorch's fused kernels take input and weight of one type, and add up in fp32 whatever that type is.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def multiplied_type(x: Tensor) -> torch.dtype:
    """The type in which a matrix would multiply `x` here: autocast's inside it, else that of `x`."""
    kind = x.device.type
    narrow = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # an outline's device has none
    return torch.get_autocast_dtype(kind) if narrow else x.dtype


class RMSNorm(nn.RMSNorm):
    """RMSNorm (arXiv:1910.07467) whose output matrices can multiply as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps).to(multiplied_type(x))


class LayerNormAfter(nn.LayerNorm):
    """LayerNorm (arXiv:1607.06450) after a sum: its output is what later blocks add to, and has the input's type."""

    def forward(self, x: Tensor) -> Tensor:
        # Where weights are gathered in 16 bits (FSDP), a CPU's kernel takes none of them beside an fp32 input.
        gain, bias = (
            parameter if parameter is None else parameter.to(x.dtype) for parameter in (self.weight, self.bias)
        )
        return F.layer_norm(x, self.normalized_shape, gain, bias, self.eps)


class LayerNorm(LayerNormAfter):
    """LayerNorm before matrices, which can multiply its output as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(multiplied_type(x))

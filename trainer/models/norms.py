"""Norms in mixed precision: sums are fp32, and the output has the type in which matrices multiply.

The residual stream is fp32 in every precision. With autocast alone, each matrix after a norm would cast the norm's fp32
output itself, and store its own copy for the backward pass: three for queries, keys and values. These norms cast once.
PyTorch's fused kernels take input and weight of one type, and sum in fp32 for any type.
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
    """RMSNorm (arXiv:1910.07467) whose output matrices multiply without a cast."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps).to(multiplied_type(x))


class LayerNormAfter(nn.LayerNorm):
    """LayerNorm (arXiv:1607.06450) after a sum: later blocks add to its output, which has the input's type."""

    def forward(self, x: Tensor) -> Tensor:
        # FSDP may gather weights in 16 bits, which a CPU's kernel does not take beside an fp32 input.
        gain = None if self.weight is None else self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.layer_norm(x, self.normalized_shape, gain, bias, self.eps)


class LayerNorm(LayerNormAfter):
    """LayerNorm before matrices, which multiply its output without a cast."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(multiplied_type(x))

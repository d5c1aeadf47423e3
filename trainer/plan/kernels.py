"""A GPU's kernels on fake tensors of a CPU: what they keep for the backward pass, in the order in which they keep it.

PyTorch chooses a kernel by the device of its arguments. Normalisation by the root mean square is fused on a GPU, and
fused attention writes its heads so that no copy follows; on a CPU neither is so.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slipway.trainer.models.decoder import sight


@contextlib.contextmanager
def gpu_kernels() -> Iterator[None]:
    """Inside, normalisation and attention are those of a GPU, also attention under a mask: FlexAttention keeps what
    flash attention keeps, and its mask of blocks is small.

    The functions themselves are replaced: a mode of PyTorch would be off in a backward pass, where blocks run again.
    """
    normalised, mixed = F.rms_norm, F.scaled_dot_product_attention
    functions: Any = F
    dense, attend = sight.mask, sight.attend
    functions.rms_norm, functions.scaled_dot_product_attention = _normalised, _mixed
    sight.mask, sight.attend = _no_mask, _unmasked
    try:
        yield
    finally:
        functions.rms_norm, functions.scaled_dot_product_attention = normalised, mixed
        sight.mask, sight.attend = dense, attend


def _normalised(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    if weight is not None and weight.dtype != x.dtype:
        return torch.rms_norm(x, shape, weight, eps)  # as on a GPU: the fused kernel takes one type
    fused: Tensor = torch.ops.aten._fused_rms_norm.default(x, shape, weight, eps)[0]
    return fused


def _no_mask(span: sight.Span) -> Tensor:
    return span.queries


def _unmasked(query: Tensor, key: Tensor, value: Tensor, mask: object) -> Tensor:
    return _mixed(query, key, value, enable_gqa=query.shape[1] != key.shape[1])


def _mixed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Flash attention where a GPU would use it: 16 bits and no mask."""
    if attn_mask is not None or query.dtype == torch.float32:
        plain = torch._C._nn.scaled_dot_product_attention
        return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    mixed: Tensor = flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return mixed

"""A GPU's kernels on fake tensors of a CPU: the tensors that they save for the backward pass, in order.

PyTorch chooses a kernel by the device of its arguments. On a GPU, RMSNorm is fused, and fused attention writes its
heads in a layout that needs no copy; on a CPU, neither is true.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slipway.trainer.models.decoder import attention_mask


@contextlib.contextmanager
def gpu_kernels() -> Iterator[None]:
    """The context in which normalisation and attention are those of a GPU.

    For attention under a mask, this holds too: FlexAttention saves the same tensors as flash attention, and its block
    mask is small. The functions themselves are replaced, because a mode of PyTorch would be off in a backward pass, in
    which blocks run again.
    """
    normalized = F.rms_norm
    mixed = F.scaled_dot_product_attention
    functions: Any = F
    dense = attention_mask.mask
    attend = attention_mask.attend
    functions.rms_norm = _normalized
    functions.scaled_dot_product_attention = _mixed
    attention_mask.mask = _no_mask
    attention_mask.attend = _unmasked
    try:
        yield
    finally:
        functions.rms_norm = normalized
        functions.scaled_dot_product_attention = mixed
        attention_mask.mask = dense
        attention_mask.attend = attend


def _normalized(x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    if weight is not None and weight.dtype != x.dtype:
        return torch.rms_norm(x, shape, weight, eps)  # as on a GPU: the fused kernel takes one type
    fused: Tensor = torch.ops.aten._fused_rms_norm.default(x, shape, weight, eps)[0]
    return fused


def _no_mask(span: attention_mask.Span) -> Tensor:
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
    """Flash attention if a GPU would use it: for 16 bits without a mask."""
    if attn_mask is not None or query.dtype == torch.float32:
        plain = torch._C._nn.scaled_dot_product_attention
        return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    mixed: Tensor = flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return mixed

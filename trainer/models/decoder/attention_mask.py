"""Sight: the tokens to which each token attends, if these are not simply all tokens before it in its sequence.

It is made once a pass, for all blocks. On a CPU it is a mask for PyTorch's fused kernel. On a GPU it is a block mask
for FlexAttention, which skips invisible blocks and stores no scores.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slipway.trainer.models.context_parallel import SequenceShare

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class Span:
    """The visible keys of each query: from its first position up to its own position."""

    queries: Tensor
    """The positions of the queries in their sequence: [queries]."""
    keys: Tensor
    """The positions of the keys, in any order: [keys]."""
    first: Tensor
    """The first visible position of each query: [batch or 1, queries]."""

    def dense(self) -> Tensor:
        """Whether each query sees each key: [batch or 1, 1, queries, keys]."""
        before = self.keys <= self.queries[:, None]
        return (before & (self.keys >= self.first[..., None])).unsqueeze(1)

    def blocks(self, compiles: bool) -> "BlockMask":
        """The mask for FlexAttention; compiled, it needs no memory for the whole mask."""
        from torch.nn.attention.flex_attention import create_block_mask

        queries = self.queries
        keys = self.keys
        first = self.first

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (keys[key] <= queries[query]) & (keys[key] >= first[batch, query])

        device = str(queries.device)
        return create_block_mask(sees, len(first), None, len(queries), len(keys), device, _compile=compiles)


class TokenSight:
    """The attention of the blocks in one pass, with one mask."""

    def __init__(self, mask: "Tensor | BlockMask", share: SequenceShare | None) -> None:
        self._mask = mask
        self._share = share

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention of this rank's tokens; inputs and output: [batch, heads, length, features]."""
        if self._share is not None:
            key, value = self._share.gathered(key, value)
        return attend(query, key, value, self._mask)


def sight(
    own: int, device: torch.device, begins: Tensor | None, window: int, share: SequenceShare | None
) -> TokenSight | None:
    """The sight of a sequence of `own` tokens, or of this rank's share; None if each sees all tokens before it.

    begins: for each token, the position at which its document begins, [batch, length]; None to see other documents too.
    window: the number of tokens that a token sees, including itself; 0 for no limit.
    """
    if begins is None and share is None:
        return None
    queries = torch.arange(own, device=device) if share is None else share.position_ids(own, device)
    keys = queries if share is None else share.gathered_places(own, device)
    first = torch.zeros_like(queries)[None] if begins is None else begins
    if window:
        first = torch.maximum(first, queries - window + 1)
    return TokenSight(mask(Span(queries, keys, first)), share)


def mask(span: Span) -> "Tensor | BlockMask":
    """The span as the mask of the device's kernel."""
    if span.queries.device.type == "cuda":
        return span.blocks(compiles=True)
    return span.dense()


def attend(query: Tensor, key: Tensor, value: Tensor, mask: "Tensor | BlockMask") -> Tensor:
    """Attention under a mask: queries [batch, heads, queries, features], keys and values with their own heads."""
    grouped = query.shape[1] != key.shape[1]
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)
    mixed: Tensor = _flex(query.device.type)(query, key, value, block_mask=mask, enable_gqa=grouped)
    return mixed


@functools.cache
def _flex(device: str) -> Callable[..., Any]:
    """FlexAttention, compiled on devices with a fused kernel that has a backward pass."""
    from torch.nn.attention.flex_attention import flex_attention

    eager: Callable[..., Any] = flex_attention
    return torch.compile(eager) if device == "cuda" else eager

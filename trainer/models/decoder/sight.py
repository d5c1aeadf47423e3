"""Sight: which tokens each token attends to, where that is not simply every token before it in its sequence.

It is made once a pass, for all blocks. On a CPU it is a mask that PyTorch's fused kernel takes; on a GPU it is a mask
of blocks for FlexAttention, which leaves out the blocks that nobody sees and keeps no scores.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slipway.trainer.models.sequence_share import SequenceShare

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class Span:
    """What each query sees: the keys from its first place on, up to its own place."""

    queries: Tensor
    """The places of the queries in their sequence: [queries]."""
    keys: Tensor
    """The places of the keys, in any order: [keys]."""
    first: Tensor
    """The first place that each query sees: [batch or 1, queries]."""

    def dense(self) -> Tensor:
        """Whether each query sees each key: [batch or 1, 1, queries, keys]."""
        before = self.keys <= self.queries[:, None]
        return (before & (self.keys >= self.first[..., None])).unsqueeze(1)

    def blocks(self, compiles: bool) -> "BlockMask":
        """The same for FlexAttention; compiled, it takes no memory for the whole mask."""
        from torch.nn.attention.flex_attention import create_block_mask

        queries, keys, first = self.queries, self.keys, self.first

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (keys[key] <= queries[query]) & (keys[key] >= first[batch, query])

        device = str(queries.device)
        return create_block_mask(sees, len(first), None, len(queries), len(keys), device, _compile=compiles)


class TokenSight:
    """How the blocks attend in one pass."""

    def __init__(self, mask: "Tensor | BlockMask", share: SequenceShare | None) -> None:
        self._mask, self._share = mask, share

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention of this rank's tokens: [batch, heads, length, features], all of them, and the queries' shape."""
        if self._share is not None:
            key, value = self._share.gathered(key, value)
        return attend(query, key, value, self._mask)


def sight(
    own: int, device: torch.device, begins: Tensor | None, window: int, share: SequenceShare | None
) -> TokenSight | None:
    """The sight of a sequence of `own` tokens, or of this rank's share; None where each sees all tokens before it.

    begins: for each token, the place at which its document begins, [batch, length]; None to see other documents too.
    window: how many tokens a token sees, itself among them; 0 for no limit.
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
    """The span as the device's kernel takes it."""
    return span.blocks(compiles=True) if span.queries.device.type == "cuda" else span.dense()


def attend(query: Tensor, key: Tensor, value: Tensor, mask: "Tensor | BlockMask") -> Tensor:
    """Attention under a mask: queries [batch, heads, queries, features], keys and values with their own heads."""
    grouped = query.shape[1] != key.shape[1]
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)
    mixed: Tensor = _flex(query.device.type)(query, key, value, block_mask=mask, enable_gqa=grouped)
    return mixed


@functools.cache
def _flex(device: str) -> Callable[..., Any]:
    """FlexAttention, compiled where that gives a fused kernel with a backward pass."""
    from torch.nn.attention.flex_attention import flex_attention

    eager: Callable[..., Any] = flex_attention
    return torch.compile(eager) if device == "cuda" else eager

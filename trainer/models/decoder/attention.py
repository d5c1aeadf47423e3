"""Causal grouped-query attention: over all tokens before a token, a window of them, or those of its document."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway.trainer.models.decoder import DecoderShape, RopeScaling
from slipway.trainer.models.decoder.attention_mask import TokenSight


class HeadNorm(nn.RMSNorm):
    """RMSNorm of each head's features. The fused kernel takes 16-bit inputs, and sums in fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, heads, length, features]; the output has its type."""
        with torch.autocast(x.device.type, enabled=False):  # autocast would make an fp32 copy of x
            return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class DecoderAttention(nn.Module):
    """Causal grouped-query attention with rotary positions or with none."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.features = config.features
        self.window = config.window
        self.grouped = config.heads != config.kv_heads
        queries = config.heads * self.features
        keys = config.kv_heads * self.features
        self.query = nn.Linear(config.width, queries, bias=config.bias != "none")
        self.key = nn.Linear(config.width, keys, bias=config.bias != "none")
        self.value = nn.Linear(config.width, keys, bias=config.bias != "none")
        self.out = nn.Linear(queries, config.width, bias=config.bias == "all")
        self.query_norm = HeadNorm(self.features, eps=config.norm_epsilon) if config.qk_norm else None
        self.key_norm = HeadNorm(self.features, eps=config.norm_epsilon) if config.qk_norm else None

    def forward(self, x: Tensor, rotation: Tensor | None = None, sight: TokenSight | None = None) -> Tensor:
        """x: [batch, length, width]; rotation: [length, features / 2, 2], None without rotary positions.

        sight: the tokens to which each token attends; None for all before it, or those of the window.
        """
        query = self._heads(self.query(x))
        key = self._heads(self.key(x))
        value = self._heads(self.value(x))
        if self.query_norm is not None and self.key_norm is not None:
            query = self.query_norm(query)
            key = self.key_norm(key)
        if rotation is not None:
            query = rotate(query, rotation)
            key = rotate(key, rotation)
        if sight is not None:
            mixed = sight.attend(query, key, value)
        elif 0 < self.window < x.shape[1]:
            mixed = windowed(query, key, value, self.window)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.grouped)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """[batch, length, heads * features] to [batch, heads, length, features]; only the heads of this rank."""
        return x.view(*x.shape[:2], x.shape[2] // self.features, self.features).transpose(1, 2)


def windowed(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Causal attention of each token to the last `window` tokens, itself among them: [batch, heads, length, features].

    The sequence is cut into pieces of a window. A piece attends to itself and the one before it, so time and memory
    grow with length x window and not with the square of the length.
    """
    length = query.shape[2]
    grouped = query.shape[1] != key.shape[1]
    pieces = -(-length // window)
    # Padding at the end comes after every real token, so no real token attends to it.
    query, key, value = (F.pad(tensor, (0, 0, 0, pieces * window - length)) for tensor in (query, key, value))
    begin_q, begin_k, begin_v = (tensor[:, :, :window] for tensor in (query, key, value))
    first = F.scaled_dot_product_attention(begin_q, begin_k, begin_v, is_causal=True, enable_gqa=grouped)
    # The other pieces become a batch, with keys and values of each and of the one before: [.., heads, .., features].
    pieces_q, pieces_k, pieces_v = (
        tensor.unfold(2, size, window).permute(0, 2, 1, 4, 3).flatten(0, 1)
        for tensor, size in ((query[:, :, window:], window), (key, 2 * window), (value, 2 * window))
    )
    key_position = torch.arange(2 * window, device=query.device)
    query_position = torch.arange(window, device=query.device)[:, None]
    mask = (key_position > query_position) & (key_position <= query_position + window)
    rest = F.scaled_dot_product_attention(pieces_q, pieces_k, pieces_v, attn_mask=mask, enable_gqa=grouped)
    batch = query.shape[0]
    heads = query.shape[1]
    features = value.shape[3]
    others = rest.view(batch, pieces - 1, heads, window, features).transpose(1, 2).flatten(2, 3)
    return torch.cat([first, others], 2)[:, :, :length]


def rotations(length: int, features: int, base: float, scaling: RopeScaling | None = None) -> Tensor:
    """Cosines and sines of the rotary positions, [length, features / 2, 2] (RoFormer, arXiv:2104.09864)."""
    # On the host, even for a model without memory: on the meta device, arange imports PyTorch's compiler.
    exact: Any = {"dtype": torch.float64, "device": "cpu"}
    frequencies = base ** (-torch.arange(0, features, 2, **exact) / features)
    if scaling is not None:
        frequencies = scaled(frequencies, scaling)
    angles = torch.outer(torch.arange(length, **exact), frequencies)
    return torch.stack([angles.cos(), angles.sin()], -1).float()


def scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """The frequencies of Llama 3.1: high ones unchanged, low ones divided by the factor, a mixture between them.

    The share of the unscaled frequency in the mixture grows with the turns of a pair in the original length
    (`rope_type: llama3` of transformers; arXiv:2407.21783 has only the base).
    """
    turns = scaling.original_length * frequencies / (2 * math.pi)
    low = scaling.low_frequency_factor
    high = scaling.high_frequency_factor
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate each pair (i, i + features / 2) by its position's angle; x: [batch, heads, length, features]."""
    cosine = rotation[..., 0].to(x.dtype)
    sine = rotation[..., 1].to(x.dtype)
    first_half, second_half = x.chunk(2, -1)
    return torch.cat([first_half * cosine - second_half * sine, first_half * sine + second_half * cosine], -1)

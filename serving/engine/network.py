"""The decoder for inference: it reads prompts into the cache, and then one token of every row at a time.

It computes the same function as `slipway.trainer.models.decoder`, with fused matrices and a KV cache. A row of the
cache belongs to one answer. Rows 0 to n - 1 are in use, so a step takes a slice of the cache and needs no gather.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from slipway.serving.engine.weights import BlockWeights, DecoderWeights, Linear, Norm
from slipway.trainer.models.decoder.attention import rotations


@dataclass(frozen=True)
class Cache:
    """Keys and values of all layers, each [layers, rows, kv_heads, length, features]."""

    keys: Tensor
    values: Tensor

    @staticmethod
    def of(weights: DecoderWeights, rows: int, length: int) -> "Cache":
        """An empty cache for `rows` answers of `length` tokens each, including their prompts."""
        shape = weights.shape
        sizes = (shape.layers, rows, shape.kv_heads, length, shape.features)
        keys, values = (weights.embedding.new_zeros(sizes) for _ in range(2))
        return Cache(keys, values)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row to another row."""
        for cache in (self.keys, self.values):
            cache[:, target, :, :length] = cache[:, source, :, :length]


def bytes_per_row(weights: DecoderWeights, length: int) -> int:
    """The memory of one row of a cache, in bytes."""
    shape = weights.shape
    return 2 * shape.layers * shape.kv_heads * shape.features * length * weights.embedding.element_size()


class InferenceDecoder:
    """A decoder and its cache. It is not thread-safe."""

    def __init__(self, weights: DecoderWeights, cache: Cache) -> None:
        self.weights = weights
        self.cache = cache
        self.shape = weights.shape
        self.longest = cache.keys.shape[3]
        self._turns = self._rotations() if self.shape.positions == "rotary" else None
        self._positions = torch.arange(self.longest, device=weights.embedding.device)

    def prefill(self, tokens: Tensor, row: int, begin: int, every: bool = False) -> Tensor:
        """Read a piece of a prompt, [tokens], into a row of the cache; its first token has the position `begin`.

        Returns the logits after the last token, [1, vocabulary], or with `every` after each, [tokens, vocabulary].
        """
        end = begin + len(tokens)
        positions = self._positions[begin:end]
        x = self._first(tokens, positions)
        turns = None if self._turns is None else self._turns[begin:end, None]
        mask = self._mask_of_piece(positions, end)
        for layer, block in enumerate(self.weights.blocks):
            query, key, value = self._projected(block, x, turns)
            keys = self.cache.keys[layer, row]
            values = self.cache.values[layer, row]
            keys[:, begin:end], values[:, begin:end] = key.transpose(0, 1), value.transpose(0, 1)
            mixed = F.scaled_dot_product_attention(
                query.transpose(0, 1)[None],
                keys[None, :, :end],
                values[None, :, :end],
                attn_mask=mask,
                is_causal=mask is None,
                enable_gqa=self.shape.heads != self.shape.kv_heads,
            )
            x = self._after(block, x, mixed[0].transpose(0, 1).flatten(1))
        return self._logits(x if every else x[-1:])

    def step(self, tokens: Tensor, positions: list[int]) -> Tensor:
        """Read one token for each of the first rows, [rows], at these positions; returns logits [rows, vocabulary]."""
        rows = len(positions)
        end = max(positions) + 1
        at = torch.tensor(positions, device=tokens.device)
        row_numbers = self._positions[:rows]
        x = self._first(tokens, at)
        turns = None if self._turns is None else self._turns[at, None]
        mask = self._mask_of_step(at, end, min(positions) + 1)
        heads = self.shape.kv_heads
        features = self.shape.features
        for layer, block in enumerate(self.weights.blocks):
            query, key, value = self._projected(block, x, turns)
            keys = self.cache.keys[layer]
            values = self.cache.values[layer]
            keys[row_numbers, :, at], values[row_numbers, :, at] = key, value
            # Query heads that share keys and values become several queries of one head.
            mixed = F.scaled_dot_product_attention(
                query.view(rows, heads, -1, features), keys[:rows, :, :end], values[:rows, :, :end], attn_mask=mask
            )
            x = self._after(block, x, mixed.reshape(rows, -1))
        return self._logits(x)

    def _first(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = F.embedding(tokens, self.weights.embedding)
        if self.weights.positions is None:
            return x
        return x + F.embedding(positions, self.weights.positions)

    def _projected(self, block: BlockWeights, x: Tensor, turns: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens [n, width], rotated by position; each [n, heads, features]."""
        heads = self.shape.heads
        shared = self.shape.kv_heads
        fused = _linear(block.fused, self._normed(block.attention_norm, x))
        fused = fused.view(len(x), heads + 2 * shared, self.shape.features)
        if block.query_norm is None or block.key_norm is None:
            turned = _turned(fused[:, : heads + shared], turns)
            return turned[:, :heads], turned[:, heads:], fused[:, heads + shared :]
        query = self._head_norm(fused[:, :heads], block.query_norm)
        key = self._head_norm(fused[:, heads : heads + shared], block.key_norm)
        return _turned(query, turns), _turned(key, turns), fused[:, heads + shared :]

    def _after(self, block: BlockWeights, x: Tensor, mixed: Tensor) -> Tensor:
        """The residual stream after a block, given its attention's output `mixed`, [n, heads * features]."""
        x = x + _linear(block.out, mixed)
        inner = _linear(block.up, self._normed(block.feed_forward_norm, x))
        if self.shape.activation == "swiglu":
            gate, up = inner.chunk(2, -1)
            inner = F.silu(gate) * up
        else:
            inner = F.gelu(inner, approximate="tanh")
        return x + _linear(block.down, inner)

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._normed(self.weights.norm, x), self.weights.head).float()

    def _normed(self, norm: Norm, x: Tensor) -> Tensor:
        sizes = (self.shape.width,)
        if self.shape.norm == "rms":
            return F.rms_norm(x, sizes, norm.weight, self.shape.norm_epsilon)
        return F.layer_norm(x, sizes, norm.weight, norm.bias, self.shape.norm_epsilon)

    def _head_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.features,), weight, self.shape.norm_epsilon)

    def _rotations(self) -> Tensor:
        """The rotation of each position and pair as a complex number: [length, features / 2]."""
        shape = self.shape
        angles = rotations(self.longest, shape.features, shape.rope_base, shape.rope_scaling)
        return torch.view_as_complex(angles.contiguous()).to(self.weights.embedding.device)

    def _mask_of_piece(self, positions: Tensor, end: int) -> Tensor | None:
        """The attention mask of a piece; None if plain causal attention is enough, at the beginning of a prompt."""
        window = self.shape.window
        if len(positions) == end and not 0 < window < end:
            return None
        visible = self._positions[:end] <= positions[:, None]
        if window:
            return visible & (self._positions[:end] > positions[:, None] - window)
        return visible

    def _mask_of_step(self, at: Tensor, end: int, shortest: int) -> Tensor | None:
        """The positions that each row attends to, [rows, 1, 1, end]; None if every row attends to all of them."""
        window = self.shape.window
        if shortest == end and not 0 < window < end:
            return None
        visible = self._positions[:end] <= at[:, None]
        visible = visible & (self._positions[:end] > at[:, None] - window) if window else visible
        return visible[:, None, None]


def _linear(matrix: Linear, x: Tensor) -> Tensor:
    return F.linear(x, matrix.weight, matrix.bias)


def _turned(x: Tensor, turns: Tensor | None) -> Tensor:
    """Rotate x, [n, heads, features] in pairs, by turns, [n, 1, features / 2], which are None without rotary
    positions."""
    if turns is None:
        return x
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

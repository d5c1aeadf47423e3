"""A Llama-style decoder: pre-norm blocks of grouped-query attention with rotary positions and SwiGLU."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config.shapes import Data
from trainer.models.decoder import DecoderShape
from trainer.models.initial_values import Computed, Constant, InitialValues, Normal
from trainer.models.model import Model, Rows, SampleNumbers


class DecoderAttention(nn.Module):
    """Causal grouped-query attention with rotary positions."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.features = config.width // config.heads
        self.grouped = config.heads != config.kv_heads
        self.query = nn.Linear(config.width, config.heads * self.features, bias=False)
        self.key = nn.Linear(config.width, config.kv_heads * self.features, bias=False)
        self.value = nn.Linear(config.width, config.kv_heads * self.features, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """x: [batch, length, width]; rotation: [length, features / 2, 2]."""
        query, key, value = (self._heads(each(x)) for each in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(
            rotate(query, rotation),
            rotate(key, rotation),
            value,
            is_causal=True,
            enable_gqa=self.grouped,
        )
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """[batch, length, heads * features] to [batch, heads, length, features]; only the heads of this rank."""
        return x.view(*x.shape[:2], x.shape[2] // self.features, self.features).transpose(1, 2)


class DecoderFeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class DecoderBlock(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = DecoderAttention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.feed_forward = DecoderFeedForward(config)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


class Decoder(Model):
    """Tokens in, logits for the next token out."""

    reads = DecoderShape.reads
    causal = True
    first_uses = ("embedding",)
    last_uses = ("norm", "head")
    columns = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
    rows = ("attention.out", "feed_forward.down")

    def __init__(self, config: DecoderShape, data: Data) -> None:
        super().__init__()
        self.config, self.length = config, data.length
        self.embedding = nn.Embedding(data.vocabulary, config.width)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = nn.Linear(config.width, data.vocabulary, bias=False)
        rotation = rotations(data.length, config.width // config.heads, config.rope_base)
        self.register_buffer("rotation", rotation, persistent=False)

    def initial(self, name: str, tensor: Tensor) -> InitialValues:
        """Normal with deviation 0.02; the two matrices that write to the residual stream, 0.02 / sqrt(2 L) (GPT-2)."""
        if name == "rotation":
            return Computed(
                lambda: rotations(self.length, self.config.width // self.config.heads, self.config.rope_base)
            )
        if tensor.dim() < 2:
            return Constant(1.0)
        into_residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
        return Normal(0.02 / math.sqrt(2 * self.config.layers) if into_residual else 0.02)

    def first(self, inputs: Tensor) -> Tensor:
        """Tokens [batch, length] to [batch, length, width]."""
        x: Tensor = self.embedding(inputs)
        return x

    def through(self, x: Tensor) -> Tensor:
        rotation = self.get_buffer("rotation")[: x.shape[1]]
        for block in self.blocks:
            x = block(x, rotation)
        return x

    def last(self, x: Tensor) -> Tensor:
        """[batch, length, width] to logits: [batch, length, vocabulary]."""
        logits: Tensor = self.head(self.norm(x))
        return logits

    def prepare(self, rows: Rows, places: SampleNumbers, device: torch.device) -> tuple[Tensor, Tensor]:
        """Each window without its last token, and without its first: [batch, length] both."""
        assert isinstance(rows, np.ndarray)
        tokens = torch.from_numpy(rows).to(device, non_blocking=True).long()
        return tokens[:, :-1], tokens[:, 1:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the tokens' cross-entropies; outputs: [batch, length, vocabulary], targets: [batch, length]."""
        return F.cross_entropy(outputs.float().flatten(0, 1), targets.flatten(), reduction="sum")

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # amax takes a fifth of the time of argmax.
        return (outputs.gather(-1, targets.unsqueeze(-1)).squeeze(-1) == outputs.amax(-1)).sum()

    @property
    def targets_per_sample(self) -> int:
        return self.length

    @property
    def flops_per_sample(self) -> int:
        """The sum over the tokens of a sequence."""
        return self.length * self.flops_per_token(self.length)

    def flops_per_token(self, length: int) -> int:
        """Forward and backward of one token: 6 N + 12 L H Q T (PaLM, appendix B, arXiv:2204.02311).

        N counts the matrix parameters without the embedding, which is a look-up.
        """
        matrices = sum(p.numel() for p in self.parameters() if p.dim() >= 2) - self.embedding.weight.numel()
        return 6 * matrices + 12 * self.config.layers * self.config.width * length


def rotations(length: int, features: int, base: float) -> Tensor:
    """Cosines and sines of the rotary positions, [length, features / 2, 2] (RoFormer, arXiv:2104.09864)."""
    # On the host also where the model has no memory yet: on the meta device, arange imports PyTorch's compiler.
    exact: Any = {"dtype": torch.float64, "device": "cpu"}
    frequencies = base ** (-torch.arange(0, features, 2, **exact) / features)
    angles = torch.outer(torch.arange(length, **exact), frequencies)
    return torch.stack([angles.cos(), angles.sin()], -1).float()


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair (i, i + features / 2) by its position's angle; x: [batch, heads, length, features]."""
    cosine, sine = rotation[..., 0].to(x.dtype), rotation[..., 1].to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosine - right * sine, left * sine + right * cosine], -1)


Network = Decoder

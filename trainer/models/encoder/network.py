"""A BERT encoder with masked-language-model head: post-norm blocks, learnt positions, GELU (arXiv:1810.04805).

It has no second task (next sentence), so no segments and no pooler; and no dropout. The tokenizer of a snapshot has no
mask token, so the embedding has one row more than the vocabulary: the last row is the mask.
"""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway.trainer.base import draws
from slipway.trainer.config.shapes import Data
from slipway.trainer.data.sequences import Tokens
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.initial_values import Constant, InitialValues, Normal
from slipway.trainer.models.model import NO_TARGET, Model, Rows, SampleNumbers
from slipway.trainer.models.norms import LayerNormAfter

MASKED = 0.8
"""The fraction of the target tokens that the model sees as the mask."""
RANDOM = 0.1
"""The fraction of the target tokens that the model sees as a random token; it sees the others unchanged."""


class EncoderAttention(nn.Module):
    """Attention of every token to all tokens of its sequence."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.features = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, length, width]."""
        query = self._heads(self.query(x))
        key = self._heads(self.key(x))
        value = self._heads(self.value(x))
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """[batch, length, heads * features] to [batch, heads, length, features]; only the heads of this rank."""
        return x.view(*x.shape[:2], x.shape[2] // self.features, self.features).transpose(1, 2)


class EncoderFeedForward(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


class EncoderBlock(nn.Module):
    """Attention and feed-forward, each added to its input and normalised."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.attention = EncoderAttention(shape.width, shape.heads)
        self.attention_norm = LayerNormAfter(shape.width, eps=1e-12)
        self.feed_forward = EncoderFeedForward(shape.width, shape.hidden)
        self.feed_forward_norm = LayerNormAfter(shape.width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x))
        out: Tensor = self.feed_forward_norm(x + self.feed_forward(x))
        return out


class Encoder(Model):
    """Tokens in, some of them masked; logits for the original token at each position out."""

    reads = EncoderShape.reads
    first_uses = ("embedding", "positions", "embedding_norm")
    last_uses = ("transform", "transform_norm", "embedding", "bias")
    columns = ("attention.query", "attention.key", "attention.value", "feed_forward.up")
    rows = ("attention.out", "feed_forward.down")
    token_rows = ("embedding.weight", "bias")
    on_stream = ("positions", "embedding_norm", "transform", "transform_norm")

    def __init__(self, shape: EncoderShape, data: Data) -> None:
        super().__init__()
        self.shape = shape
        self.data = data
        self.embedding = nn.Embedding(data.vocabulary + 1, shape.width)
        self.positions = nn.Embedding(data.length, shape.width)
        self.embedding_norm = LayerNormAfter(shape.width, eps=1e-12)
        self.blocks = nn.ModuleList(EncoderBlock(shape) for _ in range(shape.layers))
        self.transform = nn.Linear(shape.width, shape.width)
        self.transform_norm = LayerNormAfter(shape.width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(data.vocabulary + 1))

    def initial(self, name: str, tensor: Tensor) -> InitialValues:
        """Normal with deviation 0.02 (BERT); biases are 0, and the weights of norms 1."""
        if tensor.dim() >= 2:
            return Normal(0.02)
        return Constant(0.0 if name.endswith("bias") else 1.0)

    def first(self, inputs: Tensor) -> Tensor:
        """Tokens [batch, length] to [batch, positions, width]."""
        positions = self.stream.position_ids(inputs.shape[1], inputs.device)
        embedded = self.vocabulary.embedded(self.embedding, inputs)
        x: Tensor = self.embedding_norm(embedded + self.positions(positions))
        return x

    def last(self, x: Tensor) -> Tensor:
        """[batch, positions, width] to logits: [batch, length, tokens]; the matrix is the embedding's."""
        x = self.transform_norm(F.gelu(self.transform(x)))
        return self.vocabulary.logits(x, self.embedding.weight, self.bias)

    def prepare(self, rows: Rows, sample_ids: SampleNumbers, device: torch.device) -> tuple[Tensor, Tensor]:
        """The windows with masked tokens; and the original tokens there, -100 elsewhere. Both: [batch, length]."""
        assert isinstance(rows, np.ndarray)
        numbers = masked(rows[:, :-1], sample_ids, self.data, self.targets_per_sample)
        inputs, targets = (torch.from_numpy(array) for array in numbers)
        return inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the targets' cross-entropies."""
        return self.vocabulary.loss(outputs, targets)

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.vocabulary.correct(outputs, targets)

    @property
    def stream_length(self) -> int:
        return self.data.length

    @property
    def targets_per_sample(self) -> int:
        return max(1, round(self.shape.masked * self.data.length))

    @property
    def flops_per_sample(self) -> int:
        """6 N + 12 L H Q T for each token (PaLM, appendix B, arXiv:2204.02311).

        N counts the matrix parameters, with the embedding, which is also the head's matrix, and without positions.
        """
        matrices = sum(parameter.numel() for parameter in self.parameters() if parameter.dim() >= 2)
        matrices -= self.positions.weight.numel()
        attention = 12 * self.shape.layers * self.shape.width * self.data.length
        return self.data.length * (6 * matrices + attention)


MaskDraws = npt.NDArray[np.int64]


def masked(tokens: Tokens, sample_ids: SampleNumbers, data: Data, count: int) -> tuple[MaskDraws, MaskDraws]:
    """`count` tokens of each row become targets; returns the model's input and the targets: [rows, length] both."""
    rows, length = tokens.shape
    drawn = draws.uniforms(data.seed, sample_ids, length + 2 * count)
    chosen = np.argpartition(drawn[:, :length], count - 1)[:, :count]
    fate = drawn[:, length : length + count]
    other = drawn[:, length + count :]
    inputs = tokens.astype(np.int64)
    originals = np.take_along_axis(inputs, chosen, 1)
    instead = np.where(fate < MASKED + RANDOM, (other * data.vocabulary).astype(np.int64), originals)
    np.put_along_axis(inputs, chosen, np.where(fate < MASKED, data.vocabulary, instead), 1)
    targets = np.full((rows, length), NO_TARGET, np.int64)
    np.put_along_axis(targets, chosen, originals, 1)
    return inputs, targets


Network = Encoder

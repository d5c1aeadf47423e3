"""A decoder of the Llama or GPT-2 family, by its shape: pre-norm blocks of attention and feed-forward."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway.trainer.config.shapes import Data
from slipway.trainer.data.documents import Documented
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.attention import DecoderAttention, rotations
from slipway.trainer.models.decoder.attention_mask import TokenSight, sight
from slipway.trainer.models.initial_values import Computed, Constant, InitialValues, Normal
from slipway.trainer.models.model import Model, Rows, SampleNumbers
from slipway.trainer.models.norms import LayerNorm, RMSNorm


class DecoderFeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=config.bias == "all")
        self.up = nn.Linear(config.width, config.hidden, bias=config.bias == "all")
        self.down = nn.Linear(config.hidden, config.width, bias=config.bias == "all")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class DecoderGelu(nn.Module):
    """GPT-2's feed-forward block: down(gelu(up(x))), with the tanh form of GELU (arXiv:1606.08415)."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden, bias=config.bias == "all")
        self.down = nn.Linear(config.hidden, config.width, bias=config.bias == "all")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return out


class DecoderBlock(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input."""

    def __init__(self, config: DecoderShape) -> None:
        super().__init__()
        self.attention_norm = norm(config)
        self.attention = DecoderAttention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = DecoderFeedForward(config) if config.activation == "swiglu" else DecoderGelu(config)

    def forward(self, x: Tensor, rotation: Tensor | None, sight: TokenSight | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, sight)
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


class Decoder(Model):
    """Tokens in, logits for the next token out."""

    reads = DecoderShape.reads
    causal = True
    first_uses: tuple[str, ...] = ("embedding",)
    last_uses: tuple[str, ...] = ("norm", "head")
    columns: tuple[str, ...] = (
        "attention.query",
        "attention.key",
        "attention.value",
        "feed_forward.gate",
        "feed_forward.up",
    )
    rows = ("attention.out", "feed_forward.down")
    token_rows: tuple[str, ...] = ("embedding.weight", "head.weight")
    on_stream = ("positions", "norm")

    def __init__(self, config: DecoderShape, data: Data) -> None:
        super().__init__()
        self.config = config
        self.length = data.length
        self.reads_documents = config.reads_documents
        self._name_parts(config)
        self.embedding = nn.Embedding(data.vocabulary, config.width)
        self.positions = nn.Embedding(config.longest, config.width) if config.positions == "learned" else None
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.norm = norm(config)
        self.head = None if config.tied else nn.Linear(config.width, data.vocabulary, bias=False)
        if config.positions == "rotary":
            self.register_buffer("rotation", self._rotation(), persistent=False)

    def initial(self, name: str, tensor: Tensor) -> InitialValues:
        """Normal with deviation 0.02; the two matrices that write to the residual stream, 0.02 / sqrt(2 L) (GPT-2).

        Biases are 0, and the weights of norms 1.
        """
        if name == "rotation":
            return Computed(self._rotation)
        if tensor.dim() < 2:
            return Constant(0.0 if name.endswith("bias") else 1.0)
        if name.endswith(("attention.out.weight", "feed_forward.down.weight")):
            return Normal(0.02 / math.sqrt(2 * self.config.layers))
        return Normal(0.02)

    def _rotation(self) -> Tensor:
        return rotations(self.length, self.config.features, self.config.rope_base, self.config.rope_scaling)

    def _name_parts(self, config: DecoderShape) -> None:
        """Adapt the names that pipelines and tensor parallelism use to this shape."""
        if config.positions == "learned":
            self.first_uses = ("embedding", "positions")
        if config.tied:
            self.last_uses = ("norm", "embedding")
            self.token_rows = ("embedding.weight",)
        if config.activation == "gelu":
            self.columns = tuple(name for name in self.columns if name != "feed_forward.gate")
        if config.qk_norm:
            self.shared = ("attention.query_norm", "attention.key_norm")

    def first(self, inputs: Tensor) -> Tensor:
        """Tokens [batch, length] to [batch, positions, width]."""
        x = self.vocabulary.embedded(self.embedding, inputs)
        if self.positions is None:
            return x
        positions = self.stream.position_ids(inputs.shape[1], inputs.device)
        if self.share is not None:
            positions = self.share.position_ids(inputs.shape[1], inputs.device)[positions]
        embedding: Tensor = self.positions(positions)
        return x + embedding

    def through(self, x: Tensor, begins: Tensor | None = None) -> Tensor:
        length = self.stream.positions(x)
        mask = sight(length, x.device, begins, self.config.window, self.share)
        rotation = None
        if self.config.positions == "rotary":
            rotation = self.get_buffer("rotation")
            share = self.share
            rotation = rotation[:length] if share is None else rotation[share.position_ids(length, x.device)]
        for block in self.blocks:
            x = block(x, rotation, mask)
        return x

    def last(self, x: Tensor) -> Tensor:
        """[batch, positions, width] to logits [batch, length, tokens]; a tied head is the embedding's matrix."""
        head = self.embedding if self.head is None else self.head
        return self.vocabulary.logits(self.norm(x), head.weight)

    def prepare(self, rows: Rows, sample_ids: SampleNumbers, device: torch.device) -> tuple[Tensor, Tensor]:
        """Each window without its last token, and without its first: [batch, length] both."""
        assert not isinstance(rows, Labelled)
        read = rows.tokens if isinstance(rows, Documented) else rows
        tokens = torch.from_numpy(read).to(device, non_blocking=True).long()
        return tokens[:, :-1], tokens[:, 1:]

    def bounds(self, rows: Rows, device: torch.device) -> tuple[Tensor, ...]:
        if not isinstance(rows, Documented):
            return ()
        return (torch.from_numpy(rows.begins).to(device, non_blocking=True)[:, :-1].int(),)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the tokens' cross-entropies; outputs: [batch, length, tokens], targets: [batch, length]."""
        return self.vocabulary.loss(outputs, targets)

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.vocabulary.correct(outputs, targets)

    @property
    def stream_length(self) -> int:
        return self.length

    @property
    def targets_per_sample(self) -> int:
        return self.length

    @property
    def flops_per_sample(self) -> int:
        """The sum over the tokens of a sequence."""
        return self.length * self.flops_per_token(self.length)

    def flops_per_token(self, length: int) -> int:
        """Forward and backward of one token: 6 N + 12 L H Q T (PaLM, appendix B, arXiv:2204.02311).

        N counts the matrix parameters without lookup tables: positions, and the embedding unless it is also the head. T
        is the length of the sequence, or the window if that is shorter.
        """
        matrices = sum(parameter.numel() for parameter in self.parameters() if parameter.dim() >= 2)
        if not self.config.tied:
            matrices -= self.embedding.weight.numel()
        if self.positions is not None:
            matrices -= self.positions.weight.numel()
        visible_length = min(length, self.config.window or length)
        return 6 * matrices + 12 * self.config.layers * self.config.heads * self.config.features * visible_length


def norm(config: DecoderShape) -> nn.Module:
    """A norm of the residual stream: [batch, length, width] in and out."""
    kind = RMSNorm if config.norm == "rms" else LayerNorm
    return kind(config.width, eps=config.norm_epsilon)


Network = Decoder

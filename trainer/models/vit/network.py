"""A vision transformer: patches as tokens, a class token, pre-norm blocks (Dosovitskiy et al., arXiv:2010.11929)."""

import torch
from torch import Tensor, nn

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.classifier import Classifier
from slipway.trainer.models.encoder.network import EncoderAttention, EncoderFeedForward
from slipway.trainer.models.initial_values import Constant, InitialValues, Normal
from slipway.trainer.models.norms import LayerNorm
from slipway.trainer.models.vit import VisionShape


class VisionBlock(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.attention = EncoderAttention(shape.width, shape.heads)
        self.feed_forward_norm = LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.feed_forward = EncoderFeedForward(shape.width, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


class VisionTransformer(Classifier):
    """Pictures in, logits for their classes out."""

    reads = VisionShape.reads
    first_uses = ("patches", "token", "positions")
    last_uses = ("norm", "head")
    columns = ("attention.query", "attention.key", "attention.value", "feed_forward.up")
    rows = ("attention.out", "feed_forward.down")

    def __init__(self, shape: VisionShape, data: Data) -> None:
        super().__init__()
        self.shape = shape
        self.data = data
        self.augment = shape.augment
        height, width, channels = data.picture
        self.count = (height // shape.patch) * (width // shape.patch)
        self.patches = nn.Conv2d(channels, shape.width, shape.patch, stride=shape.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + self.count, shape.width))
        self.blocks = nn.ModuleList(VisionBlock(shape) for _ in range(shape.layers))
        self.norm = LayerNorm(shape.width, eps=shape.norm_epsilon)
        self.head = nn.Linear(shape.width, data.classes)

    def initial(self, name: str, tensor: Tensor) -> InitialValues:
        """Normal with deviation 0.02, for the class token and the positions too."""
        if tensor.dim() >= 2:
            return Normal(0.02)
        return Constant(0.0 if name.endswith("bias") else 1.0)

    def first(self, inputs: Tensor) -> Tensor:
        """Pictures [batch, channels, height, width] to [batch, positions, width], the class token first."""
        patches = self.patches(inputs).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.to(patches.dtype).expand(len(patches), -1, -1), patches], 1)
        return self.stream.own(tokens + self.positions)

    def last(self, x: Tensor) -> Tensor:
        """The logits, computed from the class token: [batch, classes]."""
        logits: Tensor = self.head(self.norm(self.stream.all_positions(x)[:, 0]))
        return logits

    @property
    def stream_length(self) -> int:
        return 1 + self.count

    @property
    def flops_per_sample(self) -> int:
        """6 N + 12 L H Q T for each token of the blocks (PaLM, appendix B, arXiv:2204.02311).

        The head works on one token, and the patches, whose pixels need no gradient, take 4 N each.
        """
        tokens = 1 + self.count
        width = self.shape.width
        blocks = sum(parameter.numel() for parameter in self.blocks.parameters() if parameter.dim() >= 2)
        attention = 12 * self.shape.layers * width * tokens
        ends = 4 * self.count * self.patches.weight.numel() + 6 * self.head.weight.numel()
        return tokens * (6 * blocks + attention) + ends


Network = VisionTransformer

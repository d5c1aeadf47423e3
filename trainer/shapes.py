"""The shapes of models: everything that decides their parameters but for the data's own sizes.

Plain values, so that a recipe is checked, sized and hashed without importing torch; `trainer.models` builds them.
"""

from dataclasses import dataclass
from typing import Literal

from trainer.invalid import positive, require


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

    kind: Literal["decoder"] = "decoder"
    layers: int
    width: int
    """Features of the residual stream."""
    heads: int
    """Query heads; each has width / heads features."""
    kv_heads: int
    """Key and value heads; each serves heads / kv_heads query heads."""
    hidden: int
    """Features inside the SwiGLU feed-forward block."""
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "kv_heads", "hidden", "rope_base")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")
        require(self.width // self.heads % 2 == 0, "heads", "expected an even number of features a head")
        require(self.heads % self.kv_heads == 0, "kv_heads", f"expected a divisor of heads ({self.heads})")


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """A BERT encoder with a masked-language-model head: learnt positions, GELU, LayerNorm after each sum."""

    kind: Literal["encoder"]
    layers: int
    width: int
    heads: int
    hidden: int
    """Features inside the feed-forward block."""
    masked: float = 0.15
    """The share of a sequence's tokens that are to be predicted."""

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "hidden")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")
        require(0 < self.masked < 1, "masked", "expected a number above 0, below 1")


@dataclass(frozen=True, kw_only=True)
class ResNetShape:
    """A residual network of bottlenecks, batch normalisation over all ranks (He et al., arXiv:1512.03385)."""

    kind: Literal["resnet"]
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    """Blocks in each stage: (3, 4, 6, 3) is ResNet-50, (3, 8, 36, 3) ResNet-152."""
    width: int = 64
    """Features of the first stage's bottleneck; each stage doubles them."""
    stem: Literal["imagenet", "small"] = "imagenet"
    """A 7x7 convolution of stride 2 and pooling, or for pictures under 64 pixels a 3x3 convolution."""

    def __post_init__(self) -> None:
        positive(self, "width")
        require(len(self.blocks) > 0 and min(self.blocks) > 0, "blocks", "expected one or more numbers above 0")


@dataclass(frozen=True, kw_only=True)
class VisionShape:
    """A vision transformer: patches, a class token, pre-norm blocks (Dosovitskiy et al., arXiv:2010.11929)."""

    kind: Literal["vit"]
    layers: int
    width: int
    heads: int
    hidden: int
    patch: int
    """Pixels on a side of a patch; divides the pictures' height and width."""

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "hidden", "patch")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")


Shape = DecoderShape | EncoderShape | ResNetShape | VisionShape
SHAPES: dict[str, type[Shape]] = {
    "decoder": DecoderShape,
    "encoder": EncoderShape,
    "resnet": ResNetShape,
    "vit": VisionShape,
}
"""By `kind`; a section that names none is a decoder."""

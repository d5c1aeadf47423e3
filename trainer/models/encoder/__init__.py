"""A BERT encoder: its shape, which is read without torch; `network` has the model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from slipway.trainer.base.invalid import positive, require
from slipway.trainer.config import shapes
from slipway.trainer.config.shapes import Data, Reads


@dataclass(frozen=True, kw_only=True)
class EncoderShape(shapes.Shape):
    """A BERT encoder with a masked-language-model head: learnt positions, GELU, LayerNorm after each sum."""

    kind: Literal["encoder"] = "encoder"
    reads: ClassVar[Reads] = "tokens"
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

    @property
    def divided(self) -> dict[str, int]:
        return {"heads": self.heads, "hidden": self.hidden}

    def least_weights(self, data: Data) -> int:
        return self.layers * (4 * self.width**2 + 2 * self.width * self.hidden) + data.vocabulary * self.width

    def least_kept(self, data: Data) -> int:
        return self.layers * data.length * self.width


Shape = EncoderShape

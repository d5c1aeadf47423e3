"""A Llama-style decoder: its shape, which is read without torch; `network` has the model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from trainer.base.invalid import positive, require
from trainer.config import shapes
from trainer.config.shapes import Reads


@dataclass(frozen=True, kw_only=True)
class DecoderShape(shapes.Shape):
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

    kind: Literal["decoder"] = "decoder"
    reads: ClassVar[Reads] = "tokens"
    layers: int
    """Blocks, one after the other."""
    width: int
    """Features of the residual stream."""
    heads: int
    """Query heads; each has width / heads features."""
    kv_heads: int
    """Key and value heads; each serves heads / kv_heads query heads."""
    hidden: int
    """Features inside the SwiGLU feed-forward block."""
    rope_base: float = 10_000.0
    """Base of the rotary positions' wavelengths: larger for longer sequences."""

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "kv_heads", "hidden", "rope_base")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")
        require(self.width // self.heads % 2 == 0, "heads", "expected an even number of features a head")
        require(self.heads % self.kv_heads == 0, "kv_heads", f"expected a divisor of heads ({self.heads})")

    @property
    def divided(self) -> dict[str, int]:
        return {"heads": self.heads, "kv_heads": self.kv_heads, "hidden": self.hidden}

    @property
    def stages(self) -> int:
        return self.layers


Shape = DecoderShape

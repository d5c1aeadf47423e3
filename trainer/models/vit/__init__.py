"""A vision transformer: its shape, which is read without torch; `network` has the model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from slipway.trainer.base.invalid import positive, require
from slipway.trainer.config import shapes
from slipway.trainer.config.shapes import Augment, Data, Reads


@dataclass(frozen=True, kw_only=True)
class VisionShape(shapes.Shape):
    """A vision transformer: patches, a class token, pre-norm blocks (Dosovitskiy et al., arXiv:2010.11929)."""

    kind: Literal["vit"] = "vit"
    reads: ClassVar[Reads] = "pictures"
    later: ClassVar[frozenset[str]] = frozenset({"norm_epsilon"})
    layers: int
    width: int
    heads: int
    hidden: int
    patch: int
    """Pixels on a side of a patch; divides the pictures' height and width."""
    augment: Augment = "none"
    norm_epsilon: float = 1e-6
    """What a norm adds to the variance before its root; files of transformers have 1e-12."""

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "hidden", "patch", "norm_epsilon")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")

    @property
    def divided(self) -> dict[str, int]:
        return {"heads": self.heads, "hidden": self.hidden}

    @property
    def stages(self) -> int:
        return self.layers

    def least_weights(self, data: Data) -> int:
        return self.layers * (4 * self.width**2 + 2 * self.width * self.hidden)

    def least_kept(self, data: Data) -> int:
        height, width, _ = data.picture
        return self.layers * (height // self.patch) * (width // self.patch) * self.width

    def check(self, data: Data) -> None:
        height, width, _ = data.picture
        fits = height % self.patch == 0 and width % self.patch == 0
        require(fits, "patch", f"expected a divisor of the pictures' height and width ({height} x {width})")


Shape = VisionShape

"""A residual network: its shape, which is read without torch; `network` has the model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from slipway.trainer.base.invalid import positive, require
from slipway.trainer.config import shapes
from slipway.trainer.config.shapes import Augment, Data, Reads


@dataclass(frozen=True, kw_only=True)
class ResNetShape(shapes.Shape):
    """A residual network of bottlenecks, batch normalisation over all ranks (He et al., arXiv:1512.03385)."""

    kind: Literal["resnet"] = "resnet"
    reads: ClassVar[Reads] = "pictures"
    recomputes: ClassVar[bool] = False
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    """Blocks in each stage: (3, 4, 6, 3) is ResNet-50, (3, 8, 36, 3) ResNet-152."""
    width: int = 64
    """Features of the first stage's bottleneck; each stage doubles them."""
    stem: Literal["imagenet", "small"] = "imagenet"
    """A 7x7 convolution of stride 2 and pooling, or for pictures under 64 pixels a 3x3 convolution."""
    augment: Augment = "none"

    def __post_init__(self) -> None:
        positive(self, "width")
        require(len(self.blocks) > 0 and min(self.blocks) > 0, "blocks", "expected one or more numbers above 0")

    def least_weights(self, data: Data) -> int:
        return sum((17 * count + 1) * (self.width << stage) ** 2 for stage, count in enumerate(self.blocks))

    def least_kept(self, data: Data) -> int:
        height, width, _ = data.picture
        first = 4 if self.stem == "imagenet" else 1
        sides = [first << stage for stage in range(len(self.blocks))]
        features = [4 * self.width << stage for stage in range(len(self.blocks))]
        return sum(
            count * (height // side) * (width // side) * wide
            for count, side, wide in zip(self.blocks, sides, features, strict=True)
        )


Shape = ResNetShape

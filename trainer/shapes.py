"""The shapes of models: everything that decides their parameters but for the data's own sizes.

Plain values, so that a recipe is checked, sized and hashed without importing torch; `trainer.models` builds them.
"""

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trainer.invalid import Invalid, positive, require

Reads = Literal["tokens", "pictures"]
"""What a sample is: a sequence of tokens, or a picture with its class."""
Augment = Literal["none", "crop", "crop_flip"]
"""What is done to a picture each time that it is trained on: nothing; a crop as large as the picture out of it with
an eighth of black added on all sides; that, and a mirror image every other time."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a model must know of its data to be built: the one pair or the other."""

    vocabulary: int = 0
    length: int = 0
    """Tokens a sequence."""
    picture: tuple[int, int, int] = (0, 0, 0)
    """Height, width, channels."""
    classes: int = 0
    seed: int = 0
    """What the model draws for a sample it draws from this and from the sample's place."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the shapes of all models have."""

    kind: str
    """A key of `SHAPES`, or the name of a module that has the model; see `type_of`."""
    reads: ClassVar[Reads]
    recomputes: ClassVar[bool] = True
    """Whether a block may be run again for the backward pass; not where it keeps running statistics."""

    @property
    def divided(self) -> dict[str, int]:
        """What tensor parallelism divides between ranks, by field; empty for a model that it cannot divide."""
        return {}

    @property
    def stages(self) -> int:
        """Into how many stages of a pipeline such a model can be cut at most."""
        return 1

    def check(self, data: Data) -> None:
        """Raises Invalid, with one of the shape's own fields, for data that such a model cannot take.

        Asked of recipes too, where the size of the vocabulary and the number of classes are not known yet.
        """


@dataclass(frozen=True, kw_only=True)
class DecoderShape(Shape):
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

    kind: Literal["decoder"] = "decoder"
    reads: ClassVar[Reads] = "tokens"
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

    @property
    def divided(self) -> dict[str, int]:
        return {"heads": self.heads, "kv_heads": self.kv_heads, "hidden": self.hidden}

    @property
    def stages(self) -> int:
        return self.layers


@dataclass(frozen=True, kw_only=True)
class EncoderShape(Shape):
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


@dataclass(frozen=True, kw_only=True)
class ResNetShape(Shape):
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


@dataclass(frozen=True, kw_only=True)
class VisionShape(Shape):
    """A vision transformer: patches, a class token, pre-norm blocks (Dosovitskiy et al., arXiv:2010.11929)."""

    kind: Literal["vit"] = "vit"
    reads: ClassVar[Reads] = "pictures"
    layers: int
    width: int
    heads: int
    hidden: int
    patch: int
    """Pixels on a side of a patch; divides the pictures' height and width."""
    augment: Augment = "none"

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "hidden", "patch")
        require(self.width % self.heads == 0, "heads", f"expected a divisor of width ({self.width})")

    @property
    def divided(self) -> dict[str, int]:
        return {"heads": self.heads, "hidden": self.hidden}

    @property
    def stages(self) -> int:
        return self.layers

    def check(self, data: Data) -> None:
        height, width, _ = data.picture
        fits = height % self.patch == 0 and width % self.patch == 0
        require(fits, "patch", f"expected a divisor of the pictures' height and width ({height} x {width})")


SHAPES: dict[str, type[Shape]] = {
    "decoder": DecoderShape,
    "encoder": EncoderShape,
    "resnet": ResNetShape,
    "vit": VisionShape,
}
"""The models that come with the trainer, by `kind`; a section that names none is a decoder."""


def type_of(kind: object) -> type[Shape]:
    """The shape of a model that comes with the trainer, or the `Shape` of the module that `kind` names.

    Such a module is imported here. Raises Invalid, at the field `kind`.
    """
    if kind in SHAPES:
        return SHAPES[str(kind)]
    known = f"expected one of {', '.join(SHAPES)}, or a module's dotted name"
    require(isinstance(kind, str) and "." in kind, "kind", known)
    found: type[Shape] = module(str(kind)).Shape
    return found


def module(name: str) -> Any:
    """The module of a model that does not come with the trainer: it has a `Shape` and a `Network`. Raises Invalid."""
    expected = "expected a module with the classes Shape and Network"
    try:
        found = importlib.import_module(name)
    except Exception as error:  # importing runs what others wrote
        raise Invalid("kind", f"{expected}, but importing it fails: {type(error).__name__}: {error}") from error
    shape, network = getattr(found, "Shape", None), getattr(found, "Network", None)
    fits = isinstance(shape, type) and issubclass(shape, Shape) and hasattr(shape, "reads")
    require(fits, "kind", f"{expected}, but its Shape is no trainer.shapes.Shape that says what it reads")
    require(isinstance(network, type), "kind", f"{expected}, but it has no class Network")
    return found

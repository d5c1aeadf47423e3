"""What the shapes of all models have, and how `model.kind` names a model: a shape has all sizes but those of the data.

Shapes are plain values, so that a recipe is checked, sized and hashed without importing torch; `slipway.trainer.models`
builds the models.
"""

import dataclasses
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from slipway.trainer.base.invalid import Invalid, require

Reads = Literal["tokens", "pictures"]
"""What a sample is: a sequence of tokens, or a picture with its class."""
Augment = Literal["none", "crop", "crop_flip"]
"""The change of a picture each time that it is trained on. none: no change; crop: a crop of the picture's size, taken
after an eighth of black is added on all sides; crop_flip: such a crop, mirrored every other time."""
EXPECTED = "expected a module with the classes Shape and Network"


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a model must know of its data to be built: vocabulary and length, or picture and classes."""

    vocabulary: int = 0
    length: int = 0
    """Tokens a sequence."""
    picture: tuple[int, int, int] = (0, 0, 0)
    """Height, width, channels."""
    classes: int = 0
    seed: int = 0
    """The model's random numbers for a sample depend on this and on the sample's place."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The fields that the shapes of all models have."""

    kind: str
    """The model: a folder of `slipway.trainer.models`, or the dotted name of a module; see `type_of`."""
    reads: ClassVar[Reads]
    recomputes: ClassVar[bool] = True
    """Whether a block may run again for the backward pass; a block with running statistics may not."""

    later: ClassVar[frozenset[str]] = frozenset()
    """Fields that a model got after its first release; see `section`."""

    @classmethod
    def subclass_for(cls, section: Mapping[str, Any]) -> type["Shape"]:
        """The shape of the model that a configuration's section `model` describes. Raises Invalid."""
        kind = section.get("kind", "decoder")
        try:
            return type_of(kind)
        except Invalid as error:
            raise Invalid(error.field, f"found {kind!r}, {error}") from error

    @property
    def divided(self) -> dict[str, int]:
        """The sizes that tensor parallelism divides, by field; empty for a model that cannot be divided."""
        return {}

    @property
    def stages(self) -> int:
        """The most stages of a pipeline that such a model can be cut into."""
        return 1

    @property
    def shares_sequences(self) -> bool:
        """Whether several ranks may each have a part of the same sequence (`layout.context`)."""
        return False

    @property
    def reads_documents(self) -> bool:
        """Whether sequences come with the places at which their documents begin."""
        return False

    def least_weights(self, data: Data) -> int:
        """So many weights such a model has at least; 0 for a model that does not say."""
        return 0

    def least_kept(self, data: Data) -> int:
        """So many numbers of a sample lie between the model's blocks; 0 for a model that does not say."""
        return 0

    def section(self) -> dict[str, Any]:
        """The fields that decide a training's numbers, as its identity has them.

        A field of `later` that has its default is left out, so that a training keeps its id when its model gets another
        option.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        value = dataclasses.asdict(self)
        return {name: item for name, item in value.items() if name not in self.later or item != defaults[name]}

    def check(self, data: Data) -> None:
        """Raises Invalid, with one of the shape's own fields, for data that such a model cannot take.

        Recipes are checked with it too, before the size of the vocabulary and the number of classes are known.
        """


def built_in_kinds() -> list[str]:
    """The kinds of model that come with the trainer: the folders of `slipway.trainer.models`."""
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).parents[1] / "models")]) if module.ispkg]


def type_of(kind: object) -> type[Shape]:
    """The class `Shape` of the module that `kind` names; see `_module`. Raises Invalid, at the field `kind`."""
    module = _module(kind)
    shape = getattr(module, "Shape", None)
    fits = isinstance(shape, type) and issubclass(shape, Shape) and hasattr(shape, "reads")
    require(
        fits, "kind", f"{EXPECTED}, but its Shape is no slipway.trainer.config.shapes.Shape that says what it reads"
    )
    apart = hasattr(module, "__path__") and importlib.util.find_spec(_network_module(module)) is not None
    has_network = apart or isinstance(getattr(module, "Network", None), type)
    require(has_network, "kind", f"{EXPECTED}, but it has no class Network")
    shape_type: type[Shape] = module.Shape
    return shape_type


def network_of(kind: str) -> Any:
    """The class `Network` of the module that `kind` names, or of its submodule `network`. Raises Invalid."""
    module = _module(kind)
    return module.Network if hasattr(module, "Network") else importlib.import_module(_network_module(module)).Network


def _module(kind: object) -> Any:
    """The module that `kind` names: a folder of `slipway.trainer.models`, or by its dotted name any module that Python
    finds.

    It has the class `Shape`. The class `Network` stands there too, or in its submodule `network`: then `Shape` is found
    without importing torch. Raises Invalid.
    """
    names = built_in_kinds()
    known = isinstance(kind, str) and (kind in names or "." in kind)
    require(known, "kind", f"expected one of {', '.join(names)}, or a module's dotted name")
    try:
        return importlib.import_module(f"slipway.trainer.models.{kind}" if kind in names else str(kind))
    except Exception as error:  # importing runs what others wrote
        raise Invalid("kind", f"{EXPECTED}, but importing it fails: {type(error).__name__}: {error}") from error


def _network_module(module: Any) -> str:
    return f"{module.__name__}.network"

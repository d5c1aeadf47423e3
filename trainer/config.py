"""The resolved configuration of one training: everything that decides its numbers, and how and where it runs.

One JSON file holds it and there are no other knobs. The sections are plain frozen dataclasses (`trainer.shapes`,
`trainer.sections`, `trainer.operation`): recipes validate the same ones, so a field is described and checked in
one place. The sections of `OPERATION` and `placement` are not part of a training's identity; all the rest is.
"""

import dataclasses
import json
import math
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from trainer import coherence
from trainer.invalid import Invalid, require
from trainer.operation import Hardware, Layout, Observation, Placement, Storage
from trainer.sections import Batch, Checkpoint, Communication, Init, Optimiser, Run, Validation
from trainer.shapes import Shape, type_of

FORMAT = "slipway.training-config/1"

Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class Config:
    """One training, resolved: nothing is left to look up but the files it names."""

    training: str
    """The training's id."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    model: Shape
    batch: Batch
    optimiser: Optimiser
    run: Run
    checkpoint: Checkpoint
    placement: Placement
    validation: Validation = field(default_factory=Validation)
    communication: Communication = field(default_factory=Communication)
    layout: Layout = field(default_factory=Layout)
    storage: Storage = field(default_factory=Storage)
    observation: Observation = field(default_factory=Observation)
    hardware: Hardware = field(default_factory=Hardware)
    init: Init | None = None

    def __post_init__(self) -> None:
        require(self.init is None or bool(self.placement.init), "placement.init", "expected the folder of `init`")
        coherence.check(self.communication, self.layout, self.checkpoint, self.validation)


SECTIONS: dict[str, Any] = {
    "model": Shape,
    "batch": Batch,
    "optimiser": Optimiser,
    "run": Run,
    "checkpoint": Checkpoint,
    "validation": Validation,
    "communication": Communication,
}
"""The sections that decide a training's numbers; a recipe has the same, under the same names.

`init` decides them too: a recipe says there where the weights are to be found, and not what they are.
"""
OPERATION: dict[str, Any] = {
    "layout": Layout,
    "storage": Storage,
    "observation": Observation,
    "hardware": Hardware,
}
"""The sections that say how a training runs; a recipe has the same, and they may be changed while it goes on."""


def load(path: Path) -> Config:
    """Read a resolved configuration. Raises ValueError naming the file, the field and what is expected."""
    return read(path, Config, FORMAT)


def read(path: Path, kind: type[Kind], version: str) -> Kind:
    """Read a file whose field `format` is `version` and whose others are those of the dataclass `kind`.

    Raises ValueError naming the file, the field and what is expected.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != version:
        raise ValueError(f"{path}: field format: expected {version!r}")
    try:
        built: Kind = _build(kind, document, "")
        return built
    except Invalid as error:
        raise ValueError(f"{path}: field {error.field}: {error}") from None


def dump(config: Config) -> dict[str, Any]:
    """The JSON value of `config`; `load` reads it back equal."""
    value: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **dataclasses.asdict(config)}))
    return value


def _build(kind: Any, value: Any, at: str) -> Any:
    """`value` as an instance of the dataclass `kind`. Raises Invalid with the dotted field name."""
    require(isinstance(value, dict), at.removesuffix("."), f"found {value!r}, expected a section")
    fields = {each.name: each for each in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    for name in value:
        require(name in fields, f"{at}{name}", f"unknown; expected one of {', '.join(fields)}")
    for name, each in fields.items():
        optional = each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        require(name in value or optional, f"{at}{name}", "missing")
    try:
        return kind(**{name: _convert(hints[name], item, f"{at}{name}") for name, item in value.items()})
    except Invalid as error:
        if not at or error.field.startswith(at):
            raise
        raise Invalid(f"{at}{error.field}", str(error)) from None


def shape(value: Any, at: str = "model") -> Shape:
    """The shape that a model section describes. Raises Invalid."""
    kind = value.get("kind", "decoder") if isinstance(value, dict) else "decoder"
    try:
        found = type_of(kind)
    except Invalid as error:
        raise Invalid(f"{at}.{error.field}", f"found {kind!r}, {error}") from error
    built: Shape = _build(found, value, f"{at}.")
    return built


def storage(value: Any) -> Storage:
    """The tiers that a section `storage` describes. Raises Invalid."""
    built: Storage = _build(Storage, value, "storage.")
    return built


def _convert(kind: Any, value: Any, at: str) -> Any:
    if kind == Shape:
        return shape(value, at)
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, f"{at}.")
    if type(None) in typing.get_args(kind):
        return None if value is None else _convert(typing.get_args(kind)[0], value, at)
    if typing.get_origin(kind) is tuple:
        require(isinstance(value, list), at, f"found {value!r}, expected a list")
        return tuple(_convert(typing.get_args(kind)[0], item, at) for item in value)
    if typing.get_origin(kind) is dict:
        require(isinstance(value, dict), at, f"found {value!r}, expected a section")
        return value
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        require(value in choices, at, f"found {value!r}, expected one of {', '.join(map(repr, choices))}")
        return value
    accepted = (int, float) if kind is float else (kind,)
    fits = isinstance(value, accepted) and not (isinstance(value, bool) and kind is not bool)
    require(fits, at, f"found {value!r}, expected {kind.__name__}")
    if kind is not float:
        return value
    require(math.isfinite(value), at, f"found {value!r}, expected a finite number")
    return float(value)

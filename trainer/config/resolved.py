"""The resolved configuration of one training: all that decides its numbers, and how and where it runs.

One JSON file holds it, and there are no other settings. The sections are plain frozen dataclasses
(`slipway.trainer.config.shapes`, `slipway.trainer.config.sections`, `slipway.trainer.config.operation`): recipes
validate the same ones, so a field is described and checked in one place. The sections of `OPERATION` and `placement`
are not part of a training's identity; the rest is.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slipway.trainer.base import codec
from slipway.trainer.base.invalid import require
from slipway.trainer.config import coherence
from slipway.trainer.config.mix import Mix, check_comes
from slipway.trainer.config.operation import (
    Evaluation,
    Hardware,
    Layout,
    Observation,
    Placement,
    Recovery,
    Runtime,
    Storage,
)
from slipway.trainer.config.sections import (
    Batch,
    Branch,
    Checkpoint,
    Communication,
    Init,
    OptimizerConfig,
    Run,
    Validation,
)
from slipway.trainer.config.shapes import Shape

FORMAT = "slipway.training-config/1"

Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class Config:
    """One training, resolved: nothing is left to look up but the files that it names."""

    training: str
    """The training's id."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    model: Shape
    batch: Batch
    optimizer: OptimizerConfig
    run: Run
    checkpoint: Checkpoint
    placement: Placement
    validation: Validation = field(default_factory=Validation)
    communication: Communication = field(default_factory=Communication)
    layout: Layout = field(default_factory=Layout)
    storage: Storage = field(default_factory=Storage)
    observation: Observation = field(default_factory=Observation)
    evaluation: Evaluation = field(default_factory=Evaluation)
    hardware: Hardware = field(default_factory=Hardware)
    runtime: Runtime = field(default_factory=Runtime)
    recovery: Recovery = field(default_factory=Recovery)
    mix: Mix | None = None
    init: Init | None = None
    branch: Branch | None = None

    def __post_init__(self) -> None:
        require(self.init is None or bool(self.placement.init), "placement.init", "expected the folder of `init`")
        known = self.branch is None or bool(self.placement.parent)
        require(known, "placement.parent", "expected the store of the training that `branch` names")
        check_comes(self.mix, self.run.steps)
        coherence.check(self.communication, self.layout, self.checkpoint, self.validation)


SECTIONS: dict[str, Any] = {
    "model": Shape,
    "batch": Batch,
    "optimizer": OptimizerConfig,
    "run": Run,
    "checkpoint": Checkpoint,
    "validation": Validation,
    "communication": Communication,
}
"""The sections that decide a training's numbers; a recipe has the same, under the same names.

`init` decides them too: a recipe says there where the weights lie, and the resolved section which weights they are. So
does `branch`, the checkpoint of another training that this one continues; no recipe has it.
"""
NUMBERS: dict[str, Any] = {**SECTIONS, "mix": Mix}
"""The same, and those that only some trainings have: without them, a training has the id that it always had."""
OPERATION: dict[str, Any] = {
    "layout": Layout,
    "storage": Storage,
    "observation": Observation,
    "evaluation": Evaluation,
    "hardware": Hardware,
    "runtime": Runtime,
    "recovery": Recovery,
}
"""The sections that say how a training runs; a recipe has the same, and they may change during a training."""


def load(path: Path) -> Config:
    """Read a resolved configuration. Raises ValueError naming the file, the field and what is expected."""
    return read(path, Config, FORMAT)


def read(path: Path, kind: type[Kind], version: str) -> Kind:
    """Read a file whose field `format` is `version` and whose others are those of the dataclass `kind`.

    Raises ValueError naming the file, the field, what was found and what is expected.
    """
    try:
        return codec.read(path, kind, version)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def dump(config: Config) -> dict[str, Any]:
    """The JSON value of `config`; `load` reads it back equal."""
    return codec.document(config, FORMAT)


def shape(value: Any) -> Shape:
    """The shape that a model section describes. Raises Invalid."""
    return codec.build(Shape, value, "model")


def storage(value: Any) -> Storage:
    """The tiers that a section `storage` describes. Raises Invalid."""
    return codec.build(Storage, value, "storage")

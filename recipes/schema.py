"""What a recipe holds: a dataset, a training or a sweep, version 1 of each.

The sections that decide a training's numbers are the trainer's own dataclasses, so that no field is described
or checked twice. Recipes are read by `recipes.load`; here they are plain, frozen values.
"""

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, field_validator, model_validator

from recipes import cron
from recipes.dataset import Dataset
from recipes.initial import Init
from recipes.kubernetes import Kubernetes
from recipes.parts import Count, Part, Recipe, Text, absolute
from recipes.problems import Fault
from recipes.strict import Refused, fields_of, validate, validate_section
from trainer import coherence
from trainer.config import OPERATION, SECTIONS
from trainer.invalid import require
from trainer.operation import Hardware, Layout, Observation, Storage
from trainer.sections import Batch, Checkpoint, Communication, Optimiser, Run, Validation
from trainer.shapes import Shape, type_of


def _model(section: Any) -> Shape:
    """A model section as its kind's own shape; one that names no kind is a decoder. Raises Refused and Invalid."""
    if isinstance(section, Shape):
        return section
    kind = section.get("kind", "decoder") if isinstance(section, dict) else "decoder"
    return validate_section(type_of(kind), section)


Model = Annotated[Shape, PlainValidator(_model), PlainSerializer(dataclasses.asdict)]


class Nodes(Part):
    """With how many nodes a training may run; between the two it shrinks and grows with the fleet."""

    min: Count
    max: Count

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        require(self.min <= self.max, "max", f"expected {self.min} (min) or more")
        return self


class Placement(Part):
    nodes: Nodes
    ranks_per_node: Count
    staging: Literal["before", "streaming"] = "before"
    """Whether a node stages all shards before it trains, or while it does."""
    kubernetes: Kubernetes = Kubernetes()
    """What its pods need besides, on a cluster."""


class Recovery(Part):
    no_progress_seconds: Annotated[float, Field(gt=0)]
    """Seconds without a step after which a running job counts as hung."""
    fruitless_incarnations: Count
    """How many incarnations in a row may end without a new checkpoint before the training is given up."""
    pending_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which a training that still waits for nodes, a quota or an image is told of, with the reason."""


class TrainingRecipe(Recipe):
    """What every training has, whoever wrote the loop."""

    FORMAT: ClassVar = "training/1"

    dataset: Text
    placement: Placement
    recovery: Recovery
    retrain: str | None = None
    """When to train anew: a cron string, or null for only when asked."""

    @field_validator("retrain")
    @classmethod
    def _is_cron(cls, retrain: str | None) -> str | None:
        return None if retrain is None else cron.check(retrain)


class Training(TrainingRecipe):
    """A training of one of our models."""

    model: Model
    batch: Batch
    optimiser: Optimiser
    run: Run
    checkpoint: Checkpoint
    validation: Validation = Validation()
    communication: Communication = Communication()
    layout: Layout = Layout()
    storage: Storage = Storage()
    observation: Observation = Observation()
    hardware: Hardware = Hardware()
    init: Init | None = None
    """Where the first weights come from; by default they are drawn."""
    registered_model: str
    """The model's name in the registry."""

    @field_validator("registered_model")
    @classmethod
    def _is_model_name(cls, name: str) -> str:
        if not re.fullmatch(r"[^/:\s]+", name):
            raise ValueError("expected a name without spaces, / or :")
        return name

    @model_validator(mode="after")
    def _is_coherent(self) -> Self:
        coherence.check(self.communication, self.layout, self.checkpoint, self.validation)
        return self

    def numbers(self) -> dict[str, Any]:
        """The sections that decide the training's numbers, as JSON has them, under the names of `SECTIONS`.

        With `init`, what it identifies; it is settled first.
        """
        numbers = self._sections(SECTIONS)
        return numbers if self.init is None else {**numbers, "init": self.init.identity()}

    def operation(self) -> dict[str, Any]:
        """The sections that say how the training runs, as JSON has them, under the names of `OPERATION`."""
        return self._sections(OPERATION)

    def _sections(self, names: Iterable[str]) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(
            json.dumps({name: dataclasses.asdict(getattr(self, name)) for name in names})
        )
        return value


class Script(TrainingRecipe):
    """A training whose loop is the user's own; `docs/scripts.md` is its contract."""

    code: Text
    """The folder that the command runs in, or its only file; absolute once loaded."""
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    """What each rank runs, with the path of the configuration as one more argument."""
    parameters: dict[str, Any] = Field({})
    """What the script finds in its configuration."""

    @field_validator("code")
    @classmethod
    def _is_there(cls, code: str, info: ValidationInfo) -> str:
        path = absolute(code, info)
        if not Path(path).exists():
            raise ValueError("expected a folder or a file that is there")
        return path

    @field_validator("parameters")
    @classmethod
    def _are_plain(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        for name, value in parameters.items():
            require(name.isidentifier() and name == name.lower(), name, "expected a lower-case name")
            plain = all(not isinstance(item, dict | list) for item in (value if isinstance(value, list) else [value]))
            require(plain, name, "expected a number, text, true, false, null, or a list of these")
        return parameters

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        require(self.placement.staging == "before", "placement.staging", "expected before")
        folder = Path(self.code) if Path(self.code).is_dir() else Path(self.code).parent
        for word in self._files():
            require((folder / word).is_file(), "command", f"expected a file of the code: {word} is not there")
        hides = [name for name in ("trainer", "trainer.py") if (folder / name).exists() and Path(self.code).is_dir()]
        require(not hides, "code", f"expected another name for {''.join(hides)}: it would hide Slipway's package")
        return self

    def _files(self) -> list[str]:
        """The words of the command that must be files of the code."""
        first, *others = self.command
        if first == "python":
            return [word for word in others[:1] if not word.startswith("-")]
        return [first] if "/" in first and not first.startswith("/") else []


class Domain(Part):
    """The values that a parameter of a sweep may take: exactly one of the fields."""

    loguniform: tuple[float, float] | None = None
    uniform: tuple[float, float] | None = None
    randint: tuple[int, int] | None = None
    """Both ends are included."""
    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _is_one_domain(self) -> Self:
        if len(self._chosen()) != 1:
            raise ValueError(f"expected exactly one of {', '.join(fields_of(Domain))}")
        if self.choice is None:
            low, high = self.values
            require(low < high, self.kind, "expected [low, high] with low below high")
            require(self.kind != "loguniform" or low > 0, self.kind, "expected numbers above 0")
        return self

    def _chosen(self) -> list[str]:
        return [name for name in fields_of(Domain) if getattr(self, name) is not None]

    @property
    def kind(self) -> str:
        """The name of the field that is set."""
        return self._chosen()[0]

    @property
    def values(self) -> tuple[Any, ...]:
        """The two ends of an interval, or all the choices."""
        values: tuple[Any, ...] = getattr(self, self.kind)
        return values


class Halving(Part):
    """Successive halving: at each rung the best of every `eta` trials go on, the others stop."""

    rungs: Annotated[tuple[Count, ...], Field(min_length=1)]
    """Steps at which trials are compared; the last is a trial's full length."""
    eta: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        require(list(self.rungs) == sorted(set(self.rungs)), "rungs", "expected steps that increase")
        return self


class Limits(Part):
    failed_trials: Annotated[int, Field(ge=0)]
    """How many trials may fail before the sweep does."""
    retries: Annotated[int, Field(ge=0)]
    """How often one trial is started again after a failure."""


class Sweep(Recipe):
    FORMAT: ClassVar = "sweep/1"

    training: Text
    space: Annotated[dict[str, Domain], Field(min_length=1)]
    """By parameter, written `section.field`."""
    sampler: Literal["random", "tpe"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    trials: Count
    parallel: Count
    halving: Halving
    trial: dict[str, Any] = Field({})
    """What every trial sets otherwise than the training does, by parameter."""
    limits: Limits


KINDS: dict[str, type[Dataset] | type[Training] | type[Sweep]] = {
    "datasets": Dataset,
    "trainings": Training,
    "sweeps": Sweep,
}
"""The kinds of recipes, by the folder they lie in."""


def kind_of(folder: str, value: dict[str, Any]) -> type[Dataset] | type[Training] | type[Script] | type[Sweep]:
    """The kind of recipe that `value` is in `folder`: a training with a command is a script's."""
    return Script if folder == "trainings" and "command" in value else KINDS[folder]


def with_parameters(training: Training, parameters: dict[str, Any]) -> Training:
    """`training` with parameters such as `{"optimiser.learning_rate": 0.003}` set.

    Raises Refused, a ValueError, with a fault for every parameter that is unknown or not accepted.
    """
    unknown = [fault for parameter in parameters if (fault := _unknown(training, parameter))]
    if unknown:
        raise Refused(unknown)
    value = training.model_dump(mode="json")
    for parameter, item in parameters.items():
        section, field = parameter.split(".")
        value[section][field] = item
    return validate(Training, value)


def _unknown(training: Training, parameter: str) -> Fault | None:
    section, _, field = parameter.partition(".")
    if section not in SECTIONS:
        return Fault(
            (parameter,), "an unknown parameter", f"<section>.<field>, the section one of {', '.join(SECTIONS)}"
        )
    fields = fields_of(type(getattr(training, section)))
    if field in fields:
        return None
    return Fault((parameter,), "an unknown parameter", f"one of {', '.join(f'{section}.{each}' for each in fields)}")

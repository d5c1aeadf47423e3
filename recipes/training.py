"""A training's recipe: the fields of every training, and the additional fields of a training of a built-in model.

The sections that decide a training's numbers are the trainer's own dataclasses, so that no field is described or
checked twice.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)

from slipway.recipes import cron
from slipway.recipes.gate import GateSection
from slipway.recipes.initial import InitSection
from slipway.recipes.kubernetes import Amounts, KubernetesSection, TrainingWork
from slipway.recipes.parts import Count, Recipe, RecipeSection, Text
from slipway.recipes.problems import RecipeFault, unknown
from slipway.recipes.renewal import CAUSES, RenewalSection
from slipway.recipes.strict import RefusedValue, fields_of, validate, validate_section
from slipway.trainer.base import parsing
from slipway.trainer.base.invalid import require
from slipway.trainer.config import coherence, layout
from slipway.trainer.config.mix import Mix, check_comes
from slipway.trainer.config.operation import Evaluation, Hardware, Layout, Observation, Recovery, Runtime, Storage
from slipway.trainer.config.resolved import NUMBERS, OPERATION, SECTIONS
from slipway.trainer.config.sections import Batch, Checkpoint, Communication, OptimizerConfig, Run, Validation
from slipway.trainer.config.shapes import Shape, type_of
from slipway.trainer.models.decoder.presets import PRESETS
from slipway.trainer.record import causes

MOST_NODES = 20_000
"""More nodes than the largest clusters have. The layout is checked for each number of nodes that a training may
have."""
LONGEST_MODEL_NAME = 200
"""The most bytes of a registered model's name: folders are named after it, in 255 bytes at most."""
MOST_RANKS = 1024
"""The most ranks per node: more than any node has GPUs."""
FAILURES = AliasChoices("failures_without_checkpoint", "fruitless_incarnations")
"""Both names of one field; older recipes use the second one."""
PhaseName = Literal[
    "starting", "staging", "building", "restoring", "compiling", "validating", "committing", "copying", "ending"
]
"""The phases of `slipway.trainer.record.phases` except training, whose deadline is `no_progress_seconds`."""
USUAL = Recovery()
HANG_SECONDS = 10.0
"""The default of `hang_seconds`; a shorter `no_progress_seconds` then applies to steps too."""


class NodesSection(RecipeSection):
    """The number of nodes that a training may use; between the two limits it follows the size of the fleet."""

    min: Annotated[int, Field(ge=1, le=MOST_NODES)]
    """The fewest nodes with which the training starts."""
    max: Annotated[int, Field(ge=1, le=MOST_NODES)]
    """The most nodes that the training uses."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        require(self.min <= self.max, "max", f"expected {self.min} (min) or more")
        return self


class PlacementSection(RecipeSection):
    """Where a training runs. A change takes effect when the next incarnation starts."""

    nodes: NodesSection
    ranks_per_node: Annotated[int, Field(ge=1, le=MOST_RANKS)]
    """Processes on a node: one for each GPU."""
    staging: Annotated[
        Literal["auto", "whole", "streaming", "parts", "window"],
        BeforeValidator(lambda value: "whole" if value == "before" else value),
    ] = "auto"
    """Which shards of the snapshot a node keeps on its NVMe. whole: all, before the first step; streaming: all, copied
    during training; parts: the nodes divide the shards; window: those of the coming steps. auto: the first of whole,
    parts and window that fits."""
    nvme_gigabytes: Annotated[float, Field(gt=0)] | None = None
    """The most space for shards on a node's NVMe, in 10^9 bytes; null uses nine tenths of the free space."""
    kubernetes: KubernetesSection = KubernetesSection()
    """The settings of the training's pods on a Kubernetes cluster."""
    steps: dict[TrainingWork, Amounts] = Field(default_factory=dict)
    """The resources of the steps that work on its checkpoints on a cluster, by kind of work, such as
    `evaluation: {memory: 64Gi}`. The platform's settings decide the resources that are not named here."""


class RecoverySection(RecipeSection):
    """When a training is restarted, and when it is given up."""

    no_progress_seconds: Annotated[float, Field(gt=0)]
    """A running job that completes no step for this many seconds counts as hung and is replaced."""
    failures_without_checkpoint: Annotated[Count, Field(validation_alias=FAILURES)]
    """The training is given up after this many failures in a row without a new checkpoint."""
    pending_seconds: Annotated[float, Field(gt=0)] = 600.0
    """A training that waits longer than this for nodes, a quota or an image is reported, with the reason."""
    grow: bool = True
    """Whether a training on fewer nodes than its maximum is restarted on more when nodes become available."""
    phase_seconds: dict[PhaseName, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Seconds without progress after which a job counts as hung, by phase other than training."""
    hang_seconds: Annotated[float, Field(gt=0)] = HANG_SECONDS
    """The shortest time after which a step counts as hung. The deadline is learned from the steps of the run, between
    this and `no_progress_seconds`."""
    policies: dict[str, str] = Field(default_factory=dict)
    """Responses to incidents, by cause: see `slipway.trainer.record.causes.CHOICES`."""
    skips: Annotated[int, Field(ge=0)] = USUAL.skips
    """The most batches that may be skipped within `skip_steps` steps; one more ends the training."""
    skip_steps: Count = USUAL.skip_steps
    spike_sigmas: Annotated[float, Field(ge=0)] = USUAL.spike_sigmas
    """A loss this many robust standard deviations above the recent losses is a spike; 0 turns the detection off."""
    straggler_sigmas: Annotated[float, Field(ge=0)] = USUAL.straggler_sigmas
    """A rank this many robust standard deviations slower than the others is a straggler; 0 turns the detection off."""

    survivors: Literal["by_device", "stay", "leave"] = USUAL.survivors
    """What the healthy ranks do after another rank is lost: stay in their processes, leave and be restarted, or what
    suits their device (by_device)."""
    drills: bool = USUAL.drills
    """Whether `slipway chaos` may inject faults into the running ranks, including wrong values."""

    @field_validator("policies")
    @classmethod
    def _has_answers(cls, policies: dict[str, str]) -> dict[str, str]:
        name, wrong = causes.wrong_choice(policies)
        require(not name, name, wrong)
        return policies

    @model_validator(mode="after")
    def _is_coherent(self) -> Self:
        """Refuse fields that contradict each other."""
        set_fields = self.model_fields_set
        policies = self.policies
        require(
            self.hang_seconds <= max(self.no_progress_seconds, HANG_SECONDS),
            "hang_seconds",
            f"expected no_progress_seconds ({self.no_progress_seconds:g}) at most, as no step has a longer deadline",
        )
        field = "skip_steps"
        bound = f"skips ({self.skips}) or more"
        if "skips" in set_fields:
            field = "skips"
            bound = f"skip_steps ({self.skip_steps}) at most"
        require(self.skips <= self.skip_steps, field, f"expected {bound}: otherwise every batch could be skipped")
        for name in (causes.DIVERGED, causes.SPIKE):
            skips_none = policies.get(name) == causes.SKIP and not self.skips
            require(not skips_none, f"policies.{name}", "expected another answer, as skips is 0")
        for name, sigmas in ((causes.SPIKE, "spike_sigmas"), (causes.STRAGGLER, "straggler_sigmas")):
            is_found = name not in policies or getattr(self, sigmas) > 0
            require(is_found, f"policies.{name}", f"expected no policy, as {sigmas} is 0 and so none is found")
        return self

    def of_the_ranks(self) -> Recovery:
        """The settings that the ranks themselves act on."""
        return Recovery(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Recovery)})


class TrainingRecipe(Recipe):
    """A training, with the fields that built-in models and scripts share."""

    FORMAT: ClassVar = "training/1"

    dataset: Text | None = None
    """The dataset to train on: the name of a file in datasets/; null if there is a section `mix`."""
    placement: PlacementSection
    recovery: RecoverySection
    retrain: str | None = None
    """When to retrain from the start: a cron string, or null for no schedule."""
    renewal: RenewalSection | None = None
    """What else starts a retraining (new data, drift, a loss of quality), and how much compute it may use. Null for
    none."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets to train on, by name."""
        return () if self.dataset is None else (self.dataset,)

    @field_validator("retrain")
    @classmethod
    def _is_cron(cls, retrain: str | None) -> str | None:
        return None if retrain is None else cron.check(retrain)

    @model_validator(mode="after")
    def _starts_by_itself(self) -> Self:
        alone = self.renewal is not None and not self.renewal.has_a_cause
        expected = f"expected retrain beside it, or one or more of {', '.join(CAUSES)} in it"
        require(not alone or self.retrain is not None, "renewal", expected)
        return self


def _model(section: Any) -> Shape:
    """Validate a model section as the shape of its kind, by default a decoder. Raises RefusedValue and Invalid.

    A preset names a published decoder; the other fields of the section replace the preset's.
    """
    if isinstance(section, Shape):
        return section
    if isinstance(section, dict) and "preset" in section:
        section = _with_preset(**section)
    kind = section.get("kind", "decoder") if isinstance(section, dict) else "decoder"
    return validate_section(type_of(kind), section)


Model = Annotated[Shape, PlainValidator(_model), PlainSerializer(dataclasses.asdict)]


class ModelRecipe(TrainingRecipe):
    """A training of a built-in model."""

    mix: Mix | None = None
    """The datasets to train on, with their shares of the tokens, instead of `dataset`."""
    model: Model
    batch: Batch
    optimizer: OptimizerConfig
    run: Run
    checkpoint: Checkpoint
    validation: Validation = Validation()
    communication: Communication = Communication()
    layout: Layout = Layout()
    storage: Storage = Storage()
    observation: Observation = Observation()
    evaluation: Evaluation = Evaluation()
    hardware: Hardware = Hardware()
    runtime: Runtime = Runtime()
    init: InitSection | None = None
    """The source of the initial weights; null initialises them at random."""
    registered_model: str
    """The name of the model in the registry."""
    suite: Text | None = None
    """The suite on which candidates are compared with the champion: the name of a file in suites/; null compares on the
    validation documents of the candidate's own snapshot."""
    gate: GateSection = GateSection()

    @field_validator("registered_model")
    @classmethod
    def _is_model_name(cls, name: str) -> str:
        if not re.fullmatch(r"[^/:\s\"'`\\\x00-\x1f\x7f]+", name) or name in (".", ".."):  # it names a folder too
            raise ValueError("expected a name without spaces, quotes, /, \\ or :")
        if len(name.encode()) > LONGEST_MODEL_NAME:
            raise ValueError(f"expected a name of {LONGEST_MODEL_NAME} bytes at most")
        return name

    @model_validator(mode="after")
    def _is_coherent(self) -> Self:
        expected = "expected the name of a dataset, or a section mix with several of them"
        require((self.dataset is None) != (self.mix is None), "dataset", expected)
        check_comes(self.mix, self.run.steps)
        coherence.check(self.communication, self.layout, self.checkpoint, self.validation)
        return self

    @property
    def datasets(self) -> tuple[str, ...]:
        if self.mix is None:
            return super().datasets
        return tuple(self.mix.names)

    def numbers(self) -> dict[str, Any]:
        """The sections that decide the training's numbers, as JSON, by the names of `NUMBERS`.

        With `init`, they include the identity of the initial weights, whose digest must be known.
        """
        numbers = self.numbers_alone()
        if self.init is None:
            return numbers
        return {**numbers, "init": self.init.identity()}

    def numbers_alone(self) -> dict[str, Any]:
        """Like `numbers`, but without the identity of the initial weights."""
        return self._sections(SECTIONS if self.mix is None else NUMBERS)

    def operation(self) -> dict[str, Any]:
        """The sections that decide how the training runs, as JSON, by the names of `OPERATION`."""
        return self._sections(OPERATION)

    def _sections(self, names: Iterable[str]) -> dict[str, Any]:
        sections = {name: getattr(self, name) for name in names}
        if "recovery" in sections:
            sections["recovery"] = self.recovery.of_the_ranks()
        plain = {
            n: section.section() if isinstance(section, Shape) else dataclasses.asdict(section)
            for n, section in sections.items()
        }
        value: dict[str, Any] = parsing.value(json.dumps(plain))
        return value


def with_parameters(training: ModelRecipe, parameters: Mapping[str, Any]) -> ModelRecipe:
    """A copy of `training` with parameters set, such as `{"optimizer.learning_rate": 0.003}`.

    A section, such as `{"layout": {"tensor": 2}}`, keeps its other fields. Raises RefusedValue with a fault for every
    parameter that is unknown or not accepted.
    """
    faults = list(filter(None, (_unknown(training, parameter) for parameter in parameters)))
    if faults:
        raise RefusedValue(faults)
    value = training.model_dump(mode="json")
    for parameter, item in parameters.items():
        *sections, field = parameter.split(".")
        target = value
        for section in sections:
            target = target[section]
        merged = isinstance(target.get(field), dict) and isinstance(item, dict)
        target[field] = {**target[field], **item} if merged else item
    return validate(ModelRecipe, value)


def value_at(training: ModelRecipe, parameter: str) -> Any:
    """The value of a parameter as JSON, in the form that `with_parameters` sets. Raises RefusedValue."""
    fault = _unknown(training, parameter)
    if fault:
        raise RefusedValue([fault])
    value: Any = training.model_dump(mode="json", include={parameter.split(".")[0]})
    for part in parameter.split("."):
        value = value[part]
    return value


def layout_faults(training: ModelRecipe) -> Iterator[RecipeFault]:
    """The fault of the layout at the smallest permitted number of nodes that it does not fit."""
    nodes = training.placement.nodes
    ranks_per_node = training.placement.ranks_per_node
    for count in range(nodes.min, nodes.max + 1):
        try:
            layout.check(training, count * ranks_per_node, ranks_per_node)
        except layout.UnfitLayout as unfit:
            yield RecipeFault(tuple(unfit.field.split(".")), unfit.actual, f"{unfit.expected}, with nodes: {count}")
            return


def _with_preset(preset: Any, **own: Any) -> dict[str, Any]:
    """The section of the published decoder with this name, with some fields replaced."""
    known = isinstance(preset, str) and preset in PRESETS
    require(known, "preset", f"expected one of {', '.join(PRESETS)}")
    require(own.get("kind", "decoder") == "decoder", "kind", "expected decoder, the kind of all presets")
    return {**dataclasses.asdict(PRESETS[preset].shape), **own}


def _unknown(training: ModelRecipe, parameter: str) -> RecipeFault | None:
    """The fault of a parameter that does not name a field of the sections in `NUMBERS` or `OPERATION`."""
    section, *fields = parameter.split(".")
    known = {**NUMBERS, **OPERATION}
    if section == "mix" and training.mix is None:
        return RecipeFault((parameter,), "a parameter of a mix", "a training with a section mix")
    if section not in known:
        actual = unknown("parameter", section, known)
        return RecipeFault((parameter,), actual, f"<section>.<field>, the section one of {', '.join(known)}")
    value = getattr(training, section)
    name = section
    for field in fields:
        possible = fields_of(type(value)) if _is_section(value) else value if isinstance(value, Mapping) else ()
        if field not in possible:
            expected = ", ".join(f"{name}.{field_name}" for field_name in possible) or f"{name}, which has no fields"
            actual = unknown("parameter", field, possible)
            return RecipeFault((parameter,), actual, f"one of {expected}" if possible else expected)
        value = value[field] if isinstance(value, Mapping) else getattr(value, field)
        name = f"{name}.{field}"
    return None


def _is_section(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or isinstance(value, RecipeSection)

"""A training's recipe: the fields of every training, and the further fields of a training of a built-in model.

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
from slipway.trainer.config.sections import Batch, Checkpoint, Communication, Optimiser, Run, Validation
from slipway.trainer.config.shapes import Shape, type_of
from slipway.trainer.models.decoder.presets import PRESETS
from slipway.trainer.record import causes

MOST_NODES = 20_000
"""More than the largest clusters have; a layout is checked for each number of nodes that a training may have."""
LONGEST_MODEL_NAME = 200
"""Bytes of the name of a registered model: folders are named after it, whose names have 255 at most."""
MOST_RANKS = 1024
"""Of a node: more than any has GPUs."""
FAILURES = AliasChoices("failures_without_checkpoint", "fruitless_incarnations")
"""Both names of one field; earlier recipes have the second one."""
PhaseName = Literal[
    "starting", "staging", "building", "restoring", "compiling", "validating", "committing", "copying", "ending"
]
"""The phases of `slipway.trainer.record.phases` but for training, whose deadline is `no_progress_seconds`."""
USUAL = Recovery()
HANG_SECONDS = 10.0
"""Where a recipe says nothing of it; a shorter `no_progress_seconds` then holds for steps too."""


class NodesSection(RecipeSection):
    """The number of nodes that a training may run on; between the two limits it follows the size of the fleet."""

    min: Annotated[int, Field(ge=1, le=MOST_NODES)]
    """The fewest nodes with which the training starts."""
    max: Annotated[int, Field(ge=1, le=MOST_NODES)]
    """The most nodes of the training."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        require(self.min <= self.max, "max", f"expected {self.min} (min) or more")
        return self


class PlacementSection(RecipeSection):
    """Where a training runs. A change reaches a training that goes on when its next incarnation starts."""

    nodes: NodesSection
    ranks_per_node: Annotated[int, Field(ge=1, le=MOST_RANKS)]
    """Processes on a node: one for each GPU."""
    staging: Annotated[
        Literal["auto", "whole", "streaming", "parts", "window"],
        BeforeValidator(lambda value: "whole" if value == "before" else value),
    ] = "auto"
    """What of the snapshot a node holds on its NVMe. whole: all shards, before the first step; streaming: all, while it
    trains; parts: the nodes divide the shards; window: the shards that the coming steps read. auto: the first that fits
    of whole, parts and window."""
    nvme_gigabytes: Annotated[float, Field(gt=0)] | None = None
    """The most that the shards may take on a node's NVMe, in 10^9 bytes; null: what is free, less a tenth."""
    kubernetes: KubernetesSection = KubernetesSection()
    """The settings of the training's pods on a Kubernetes cluster."""
    steps: dict[TrainingWork, Amounts] = Field(default_factory=dict)
    """What the steps that work on its checkpoints get on a cluster, by the kind of work: `evaluation: {memory: 64Gi}`;
    the platform's settings decide the rest."""


class RecoverySection(RecipeSection):
    """When a training is started again, and when it is given up."""

    no_progress_seconds: Annotated[float, Field(gt=0)]
    """Seconds without a new step after which a running job counts as hung and is replaced."""
    failures_without_checkpoint: Annotated[Count, Field(validation_alias=FAILURES)]
    """Failures in a row without a new checkpoint after which the training is given up."""
    pending_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which a training that still waits for nodes, a quota or an image is reported with the reason."""
    grow: bool = True
    """Whether a training that runs on fewer nodes than it may is started again on more when nodes come back."""
    phase_seconds: dict[PhaseName, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Seconds without progress after which a job counts as hung in a phase other than its steps."""
    hang_seconds: Annotated[float, Field(gt=0)] = HANG_SECONDS
    """Seconds after which a step counts as hung at the earliest, however short the steps are; the deadline is learned
    from the steps of the run, and is at most `no_progress_seconds`."""
    policies: dict[str, str] = Field(default_factory=dict)
    """The answers to causes, by the cause's name: see `slipway.trainer.record.causes.CHOICES`."""
    skips: Annotated[int, Field(ge=0)] = USUAL.skips
    """So many batches are left out in `skip_steps` steps at most; one more ends the training."""
    skip_steps: Count = USUAL.skip_steps
    spike_sigmas: Annotated[float, Field(ge=0)] = USUAL.spike_sigmas
    """A loss so many robust standard deviations above the last ones is a spike; 0 for never."""
    straggler_sigmas: Annotated[float, Field(ge=0)] = USUAL.straggler_sigmas
    """A rank so many robust standard deviations slower than the others is a straggler; 0 for never."""

    survivors: Literal["by_device", "stay", "leave"] = USUAL.survivors
    """What well ranks do when one is lost: stay in their processes, be started anew, or what suits their device."""
    drills: bool = USUAL.drills
    """Whether `slipway chaos` may ask the running ranks for faults, also in their values."""

    @field_validator("policies")
    @classmethod
    def _has_answers(cls, policies: dict[str, str]) -> dict[str, str]:
        name, wrong = causes.wrong_choice(policies)
        require(not name, name, wrong)
        return policies

    @model_validator(mode="after")
    def _is_coherent(self) -> Self:
        """What one field says must not take away what another one says."""
        set_fields, policies = self.model_fields_set, self.policies
        require(
            self.hang_seconds <= max(self.no_progress_seconds, HANG_SECONDS),
            "hang_seconds",
            f"expected no_progress_seconds ({self.no_progress_seconds:g}) at most, as no step has a longer deadline",
        )
        field, other = ("skips", "skip_steps") if "skips" in set_fields else ("skip_steps", "skips")
        bound = f"{other} ({getattr(self, other)}) {'at most' if field == 'skips' else 'or more'}"
        require(self.skips <= self.skip_steps, field, f"expected {bound}: otherwise batches are left out for ever")
        for name in (causes.DIVERGED, causes.SPIKE):
            skips_none = policies.get(name) == causes.SKIP and not self.skips
            require(not skips_none, f"policies.{name}", "expected another answer, as skips is 0")
        for name, sigmas in ((causes.SPIKE, "spike_sigmas"), (causes.STRAGGLER, "straggler_sigmas")):
            is_found = name not in policies or getattr(self, sigmas) > 0
            require(is_found, f"policies.{name}", f"expected no policy, as {sigmas} is 0 and so none is found")
        return self

    def of_the_ranks(self) -> Recovery:
        """The part that the ranks act on."""
        return Recovery(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Recovery)})


class TrainingRecipe(Recipe):
    """A training. These fields are the same for built-in models and for scripts."""

    FORMAT: ClassVar = "training/1"

    dataset: Text | None = None
    """The dataset to train on: the name of a file in datasets/; with a section `mix`, null."""
    placement: PlacementSection
    recovery: RecoverySection
    retrain: str | None = None
    """When to train again from the start: a cron string, or null for never by itself."""
    renewal: RenewalSection | None = None
    """What else starts it anew: new data, a fall in quality; and what its trainings may take. null for nothing."""

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
    """A model section as the shape of its kind; without a kind it is a decoder. Raises RefusedValue and Invalid.

    With a preset it is a published decoder, with the other fields of the section in place of its own.
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
    """The datasets to train on, with their shares of the tokens, in place of `dataset`."""
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
    evaluation: Evaluation = Evaluation()
    hardware: Hardware = Hardware()
    runtime: Runtime = Runtime()
    init: InitSection | None = None
    """Where the first weights come from; null draws them at random."""
    registered_model: str
    """The name of the model in the registry."""
    suite: Text | None = None
    """What its candidates are compared on with the champion: the name of a file in suites/; null for the validation
    documents of the candidate's own snapshot."""
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
        return super().datasets if self.mix is None else tuple(self.mix.names)

    def numbers(self) -> dict[str, Any]:
        """The sections that decide the training's numbers, as JSON has them, by the names of `NUMBERS`.

        With `init`, they include the identity of the weights, whose digest must be known.
        """
        numbers = self.numbers_alone()
        return numbers if self.init is None else {**numbers, "init": self.init.identity()}

    def numbers_alone(self) -> dict[str, Any]:
        """The same without the identity of initial weights."""
        return self._sections(SECTIONS if self.mix is None else NUMBERS)

    def operation(self) -> dict[str, Any]:
        """The sections that decide how the training runs, as JSON has them, by the names of `OPERATION`."""
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
    """`training` with parameters such as `{"optimiser.learning_rate": 0.003}` set, or `{"layout": {"tensor": 2}}`, of
    which the other fields stay.

    Raises RefusedValue with a fault for every parameter that is unknown or not accepted.
    """
    faults = [fault for parameter in parameters if (fault := _unknown(training, parameter))]
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
    """The value of a parameter as `with_parameters` would set it, as JSON has it. Raises RefusedValue."""
    if fault := _unknown(training, parameter):
        raise RefusedValue([fault])
    value: Any = training.model_dump(mode="json", include={parameter.split(".")[0]})
    for part in parameter.split("."):
        value = value[part]
    return value


def layout_faults(training: ModelRecipe) -> Iterator[RecipeFault]:
    """The fault of the layout at the smallest number of nodes that it does not fit, of those the training may have."""
    nodes, ranks_per_node = training.placement.nodes, training.placement.ranks_per_node
    for count in range(nodes.min, nodes.max + 1):
        try:
            layout.check(training, count * ranks_per_node, ranks_per_node)
        except layout.UnfitLayout as unfit:
            yield RecipeFault(tuple(unfit.field.split(".")), unfit.actual, f"{unfit.expected}, with nodes: {count}")
            return


def _with_preset(preset: Any, **own: Any) -> dict[str, Any]:
    """The section of the published decoder of this name, with fields of its own."""
    known = isinstance(preset, str) and preset in PRESETS
    require(known, "preset", f"expected one of {', '.join(PRESETS)}")
    require(own.get("kind", "decoder") == "decoder", "kind", "expected decoder, the kind of all presets")
    return {**dataclasses.asdict(PRESETS[preset].shape), **own}


def _unknown(training: ModelRecipe, parameter: str) -> RecipeFault | None:
    """The fault of a parameter that names no field of a section that decides numbers, or how a training runs."""
    section, *fields = parameter.split(".")
    known = {**NUMBERS, **OPERATION}
    if section == "mix" and training.mix is None:
        return RecipeFault((parameter,), "a parameter of a mix", "a training with a section mix")
    if section not in known:
        actual = unknown("parameter", section, known)
        return RecipeFault((parameter,), actual, f"<section>.<field>, the section one of {', '.join(known)}")
    value, name = getattr(training, section), section
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

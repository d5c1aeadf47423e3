"""A sweep's recipe: which parameters of a training are searched, by how many trials, and which trials go on."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from recipes.kubernetes import KubernetesSection
from recipes.parts import Count, Recipe, RecipeSection, Text
from recipes.strict import fields_of
from recipes.training import ModelRecipe, NodesSection, PlacementSection, with_parameters
from trainer.base.invalid import require


class Domain(RecipeSection):
    """The values that a parameter of a sweep may take: exactly one of these fields."""

    loguniform: tuple[float, float] | None = None
    """[low, high]: a number between the two, whose logarithm is drawn uniformly."""
    uniform: tuple[float, float] | None = None
    """[low, high]: a number between the two."""
    randint: tuple[int, int] | None = None
    """[low, high]: a whole number from low to high, both included."""
    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    """A list: one of its values."""

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


class HalvingSection(RecipeSection):
    """Successive halving: at each rung about one trial in `eta` goes on, the others stop."""

    rungs: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The steps at which trials are compared, increasing; the last is the full length of a trial."""
    eta: Annotated[int, Field(ge=2)]
    """At each rung, one trial in this many goes on."""

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        require(list(self.rungs) == sorted(set(self.rungs)), "rungs", "expected steps that increase")
        return self


class LimitsSection(RecipeSection):
    """How many failures a sweep survives."""

    failed_trials: Annotated[int, Field(ge=0)]
    """How many trials may fail for good; one more fails the sweep."""
    retries: Annotated[int, Field(ge=0)]
    """How many times one trial is started again after a failure."""


class TrialPlacementSection(RecipeSection):
    """Where a trial runs; what is left out is as the training has it, except that a trial has one node."""

    nodes: NodesSection = NodesSection(min=1, max=1)
    """The number of nodes that a trial may run on."""
    ranks_per_node: Count | None = None
    """Processes on a node: one for each GPU; null for as many as the training has."""
    kubernetes: KubernetesSection = KubernetesSection()
    """What differs for the pods of a trial on a Kubernetes cluster: queue, priority, resources."""

    def of_trial(self, training: PlacementSection) -> PlacementSection:
        """The placement of a trial of a training that is placed so."""
        pods = self.kubernetes.model_dump(exclude_unset=True)
        changed: dict[str, Any] = {"nodes": self.nodes, "kubernetes": training.kubernetes.model_copy(update=pods)}
        if self.ranks_per_node is not None:
            changed["ranks_per_node"] = self.ranks_per_node
        return training.model_copy(update=changed)


class SweepRecipe(Recipe):
    """A search for the best parameters of a training."""

    FORMAT: ClassVar = "sweep/1"

    training: Text
    """The training whose parameters are searched: the name of a file in trainings/."""
    space: Annotated[dict[str, Domain], Field(min_length=1)]
    """The values to search, by the name of the parameter: `section.field` of the training."""
    sampler: Literal["random", "tpe"]
    """How parameters are drawn: at random, or by a model of the trials so far (tree-structured Parzen estimator)."""
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """The seed of the sampler: the same seed draws the same parameters."""
    trials: Count
    """How many trials the sweep has."""
    parallel: Count
    """How many trials run at the same time at most."""
    halving: HalvingSection
    trial: dict[str, Any] = Field({})
    """The parameters that every trial sets to another value than the training does, by name."""
    placement: TrialPlacementSection = TrialPlacementSection()
    """Where a trial runs; what is left out is as the training has it, except that a trial has one node."""
    limits: LimitsSection

    def trial_of(self, training: ModelRecipe) -> ModelRecipe:
        """The recipe that all trials have in common: the training's, with what the sweep says of trials.

        A trial that fails is given up at once, because `limits.retries` starts it again. Raises RefusedValue.
        """
        trial = with_parameters(training, self.trial)
        recovery = trial.recovery.model_copy(update={"failures_without_checkpoint": 1})
        return trial.model_copy(update={"placement": self.placement.of_trial(trial.placement), "recovery": recovery})

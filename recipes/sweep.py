"""A sweep's recipe: which parameters of a training are searched, by how many trials, and which trials go on."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slipway.recipes.domain import Domain
from slipway.recipes.kubernetes import KubernetesSection
from slipway.recipes.parts import Count, Recipe, RecipeSection, Text
from slipway.recipes.schedulers import SchedulerSection
from slipway.recipes.training import MOST_RANKS, ModelRecipe, NodesSection, PlacementSection, with_parameters

BUDGET = ("trials", "parallel", "limits", "goal")
"""What a sweep may spend: a change continues the same sweep. All else but where trials run decides what the sweep
is."""
METRICS = ("validation_loss",)
"""What every trial reports at each validation."""

SamplerName = Literal["random", "grid", "quasi-random", "tpe", "gp", "cma-es"]


class GoalSection(RecipeSection):
    """What is good enough: the sweep is complete once a trial reports it."""

    metric: Text = METRICS[0]
    """The metric that trials report."""
    at_most: float
    """The value that is good enough."""


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
    ranks_per_node: Annotated[int, Field(ge=1, le=MOST_RANKS)] | None = None
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
    """The values to search, by the name of the parameter: a field of the training, such as `optimiser.learning_rate`,
    or a section, such as `layout`."""
    constraints: tuple[Text, ...] = ()
    """What must hold between parameters, such as `batch.micro <= batch.sequences`: comparisons of numbers, texts and
    fields of the training, with + - * / // % and parentheses, joined by `and`, `or` and `not`."""
    sampler: SamplerName
    """How parameters are drawn. random; grid: all combinations; quasi-random: evenly (Sobol); by a model of the trials
    so far: tpe (tree-structured Parzen estimator), gp (Gaussian process, for few trials that take long), cma-es
    (evolution strategy, for numbers). Trial 0 is always the recipe as it is written."""
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """The seed of the sampler and the scheduler: the same seed draws the same parameters."""
    trials: Count
    """How many trials the sweep has."""
    parallel: Count
    """How many trials run at the same time at most."""
    scheduler: Annotated[SchedulerSection, Field(discriminator="kind")]
    """Which trials go on, and where they pause."""
    trial: dict[str, Any] = Field({})
    """The parameters that every trial sets to another value than the training does, by name."""
    placement: TrialPlacementSection = TrialPlacementSection()
    """Where a trial runs; what is left out is as the training has it, except that a trial has one node."""
    limits: LimitsSection
    goal: GoalSection | None = None
    """What is good enough; null lets all trials run."""

    def trial_of(self, training: ModelRecipe) -> ModelRecipe:
        """The recipe that all trials have in common: the training's, with what the sweep says of trials.

        A trial that fails is given up at once, because `limits.retries` starts it again. Raises RefusedValue.
        """
        trial = with_parameters(training, self.trial)
        recovery = trial.recovery.model_copy(update={"failures_without_checkpoint": 1})
        return trial.model_copy(update={"placement": self.placement.of_trial(trial.placement), "recovery": recovery})

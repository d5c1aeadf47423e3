"""A sweep's recipe: the parameters of a training to search, the number of trials, and which trials continue."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slipway.recipes.domain import Domain
from slipway.recipes.kubernetes import KubernetesSection
from slipway.recipes.parts import Count, Recipe, RecipeSection, Text
from slipway.recipes.schedulers import SchedulerSection
from slipway.recipes.training import MOST_RANKS, ModelRecipe, NodesSection, PlacementSection, with_parameters

BUDGET = ("trials", "parallel", "limits", "goal")
"""The fields of a sweep's budget: a change of them continues the same sweep. All other fields except the trials'
placement decide the sweep's identity."""
METRICS = ("validation_loss",)
"""The metrics that every trial reports at each validation."""

SamplerName = Literal["random", "grid", "quasi-random", "tpe", "gp", "cma-es"]


class GoalSection(RecipeSection):
    """The value that is good enough: the sweep is complete once a trial reports it."""

    metric: Text = METRICS[0]
    """The metric that trials report."""
    at_most: float
    """The value that is good enough."""


class LimitsSection(RecipeSection):
    """The number of failures that a sweep tolerates."""

    failed_trials: Annotated[int, Field(ge=0)]
    """The most trials that may fail for good; one more makes the sweep fail."""
    retries: Annotated[int, Field(ge=0)]
    """The most restarts of one trial after failures."""


class TrialPlacementSection(RecipeSection):
    """Where a trial runs; what is left out is as the training has it, except that a trial has one node."""

    nodes: NodesSection = NodesSection(min=1, max=1)
    """The number of nodes that a trial may run on."""
    ranks_per_node: Annotated[int, Field(ge=1, le=MOST_RANKS)] | None = None
    """Processes per node, one for each GPU; null for the training's number."""
    kubernetes: KubernetesSection = KubernetesSection()
    """Settings of a trial's pods on a Kubernetes cluster, such as queue, priority and resources."""

    def of_trial(self, training: PlacementSection) -> PlacementSection:
        """The placement of a trial, given the placement of its training."""
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
    """The values to search, by parameter. A parameter is a field of the training, such as `optimizer.learning_rate`, or
    a section, such as `layout`."""
    constraints: tuple[Text, ...] = ()
    """Constraints between parameters, such as `batch.micro <= batch.sequences`: comparisons of numbers, texts and
    fields of the training, with + - * / // % and parentheses, joined by `and`, `or` and `not`."""
    sampler: SamplerName
    """How to draw parameters. random; grid: all combinations; quasi-random: evenly (Sobol); or with a model of the
    trials so far: tpe (tree-structured Parzen estimator), gp (Gaussian process, for few long trials), cma-es (evolution
    strategy, for numbers). Trial 0 is always the recipe as it is written."""
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """The seed of the sampler and the scheduler: the same seed draws the same parameters."""
    trials: Count
    """The number of trials."""
    parallel: Count
    """The most trials that run at the same time."""
    scheduler: Annotated[SchedulerSection, Field(discriminator="kind")]
    """Decides which trials continue, and where they pause."""
    trial: dict[str, Any] = Field({})
    """Values, by parameter, that every trial uses instead of the training's."""
    placement: TrialPlacementSection = TrialPlacementSection()
    """Where a trial runs; what is left out is as the training has it, except that a trial has one node."""
    limits: LimitsSection
    goal: GoalSection | None = None
    """A value that is good enough to complete the sweep; null runs all trials."""

    def trial_of(self, training: ModelRecipe) -> ModelRecipe:
        """The recipe that all trials share: the training's, with the sweep's settings for trials.

        It gives up at the first failure, because `limits.retries` starts a trial again. Raises RefusedValue.
        """
        trial = with_parameters(training, self.trial)
        recovery = trial.recovery.model_copy(update={"failures_without_checkpoint": 1})
        return trial.model_copy(update={"placement": self.placement.of_trial(trial.placement), "recovery": recovery})

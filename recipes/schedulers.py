"""The section `scheduler` of a sweep's recipe: which trials go on past a rung, and where a trial pauses.

Steps are whole numbers throughout. `assets/sweeps/schedulers/` has a file for each kind, which decides.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from slipway.recipes.parts import Count, RecipeSection
from slipway.recipes.strict import validate
from slipway.trainer.base.invalid import require


class NoScheduler(RecipeSection):
    """Every trial trains at full length."""

    kind: Literal["none"]


class _WithRungs(RecipeSection):
    rungs: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The steps at which trials are compared, increasing; the last is the full length of a trial."""

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        require(list(self.rungs) == sorted(set(self.rungs)), "rungs", "expected steps that increase")
        return self


class _WithHalving(_WithRungs):
    eta: Annotated[int, Field(ge=2)]
    """At each rung, one trial in this many goes on."""
    noise: Annotated[float, Field(ge=0)] | None = None
    """A difference of two values that says nothing: the best two of a rung go on when they are no further apart. null
    estimates it from the reports of the trials."""


class PromotionScheduler(_WithHalving):
    """Successive halving by promotion: a trial pauses at each rung with a checkpoint, and the best go on from there."""

    kind: Literal["promotion"]
    restart_steps: Annotated[float, Field(ge=0)] = 0.0
    """What it costs to let a paused trial go on, in steps of training. A trial does not pause at a rung where this is
    more than a tenth of the steps to the next one: it keeps its slot, and stops there unless it is among the best."""


class StoppingScheduler(_WithHalving):
    """Successive halving by stopping: a trial is judged at each rung as it arrives, and stops or trains on."""

    kind: Literal["stopping"]


class HyperbandScheduler(_WithHalving):
    """Hyperband: several brackets of successive halving by promotion, each with its first rung one further up."""

    kind: Literal["hyperband"]
    restart_steps: Annotated[float, Field(ge=0)] = 0.0
    """As for `promotion`."""


class MedianScheduler(_WithRungs):
    """The median rule: a trial stops at a rung when its best value so far is above the median of the others'."""

    kind: Literal["median"]
    startup: Count = 5
    """So many trials must have come to a rung before one is stopped there."""


class PopulationScheduler(RecipeSection):
    """Population-based training: at each interval the worst members continue a copy of one of the best.

    `trials` is the number of members. The members wait for one another at each interval, and a copy begins with the
    weights of its parent's verified commit and with changed parameters.
    """

    kind: Literal["population"]
    every: Count
    """The steps of an interval; it divides `run.steps` of a trial."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """The share of members that are replaced, and the share of those that are copied."""
    factors: tuple[float, float] = (0.8, 1.25)
    """A parameter of a copy is that of its parent times one of these; of a list, it is a neighbour."""
    resample: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The probability with which a parameter of a copy is drawn anew instead."""

    @model_validator(mode="after")
    def _one_down_one_up(self) -> Self:
        down, up = self.factors
        require(0 < down < 1 < up, "factors", "expected [a number between 0 and 1, a number above 1]")
        return self


SchedulerSection = (
    NoScheduler | PromotionScheduler | StoppingScheduler | HyperbandScheduler | MedianScheduler | PopulationScheduler
)


class _Alone(RecipeSection):
    scheduler: Annotated[SchedulerSection, Field(discriminator="kind")]


def parsed(section: Mapping[str, Any]) -> SchedulerSection:
    """The section that a plain value describes, as the log of a sweep has it. Raises RefusedValue."""
    return validate(_Alone, {"scheduler": dict(section)}).scheduler

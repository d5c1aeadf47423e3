"""The section `scheduler` of a sweep's recipe: which trials continue past a rung, and where a trial pauses.

Steps are whole numbers throughout. `assets/sweeps/schedulers/` has one file for each kind, with its decisions.
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
    """At each rung, one in `eta` trials continues."""
    noise: Annotated[float, Field(ge=0)] | None = None
    """The noise of the metric: if the best two trials of a rung differ by no more than this, both continue. null
    estimates the noise from the trials' reports."""


class PromotionScheduler(_WithHalving):
    """Successive halving by promotion: every trial pauses at each rung with a checkpoint, and the best continue."""

    kind: Literal["promotion"]
    restart_steps: Annotated[float, Field(ge=0)] = 0.0
    """The cost of resuming a paused trial, in training steps. If it exceeds a tenth of the steps to the next rung, a
    trial does not pause at this rung: it keeps its slot, and stops there unless it is among the best."""


class StoppingScheduler(_WithHalving):
    """Successive halving by stopping: a trial is judged when it reaches a rung, and stops or continues."""

    kind: Literal["stopping"]


class HyperbandScheduler(_WithHalving):
    """Hyperband: several brackets of successive halving by promotion; each bracket starts one rung later."""

    kind: Literal["hyperband"]
    restart_steps: Annotated[float, Field(ge=0)] = 0.0
    """As in the scheduler `promotion`."""


class MedianScheduler(_WithRungs):
    """The median rule: a trial stops at a rung if its best value so far is above the median of the other trials."""

    kind: Literal["median"]
    startup: Count = 5
    """The rule stops no trial at a rung before this many trials have reached it."""


class PopulationScheduler(RecipeSection):
    """Population-based training: at each interval, copies of the best members replace the worst members.

    `trials` is the number of members. The members wait for one another at each interval. A copy starts with the weights
    of its parent's verified commit and with changed parameters.
    """

    kind: Literal["population"]
    every: Count
    """The steps of an interval, a divisor of `run.steps` of a trial."""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """The share of members that are replaced, which is also the share of members that are copied."""
    factors: tuple[float, float] = (0.8, 1.25)
    """A copy's parameter is its parent's times one of these two factors; a parameter with a list of values takes a
    neighbouring value."""
    resample: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The probability that a parameter of a copy is drawn anew instead."""

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
    """The section that a JSON value in the log of a sweep describes. Raises RefusedValue."""
    return validate(_Alone, {"scheduler": dict(section)}).scheduler

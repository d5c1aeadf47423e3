"""The section `renewal` of a training: when it is retrained besides its schedule, and how much compute that may use."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from slipway.recipes import cron
from slipway.recipes.parts import RecipeSection

Positive = Annotated[float, Field(gt=0)]
CAUSES = ("new_data", "drift", "live_drift", "quality")


class RenewalSection(RecipeSection):
    """When Slipway retrains without a person: on new data, on drift of the data or of the requests to the served model,
    and when the champion has become worse."""

    new_data: Annotated[float, Field(gt=0, le=1)] | None = None
    """Retrain once at least this share of the documents (0 to 1) is new since the newest training's snapshot; null for
    never."""
    drift: Positive | None = None
    """Retrain once the population stability index of the documents' lengths or languages (for pictures: of their
    classes) between the newest training's snapshot and the current one reaches this; null for never. Values above 0.25
    count as a large change. A dataset's `checks.drift` compares only with the parent snapshot, so small steps can pass
    it and still add up here."""
    live_drift: Positive | None = None
    """Retrain once the population stability index between the requests to the served champion in the last 7 days and
    its training documents (by language or token) reaches this, and a newer snapshot than the newest training's exists;
    null for never. It needs at least 200 requests."""
    quality: str | None = None
    """When to evaluate the champion on the current snapshot: a cron string, or null for never. If its loss there is
    worse than the recorded one by more than both confidence intervals, the previous champion comes back if it is
    better, and a training starts."""
    cool_down_hours: Annotated[float, Field(ge=0)] = 24.0
    """Hours after the last request for a training of this recipe before the section starts another one."""
    gpu_hours: Positive | None = None
    """The most rank-hours of all the recipe's trainings in the last 30 days: above it, neither this section nor the
    schedule (`retrain`) starts another one. Null for no limit."""
    from_champion: bool = False
    """Whether a retraining starts from the champion's weights, if they fit, instead of the recipe's initial weights."""

    @field_validator("quality")
    @classmethod
    def _is_cron(cls, quality: str | None) -> str | None:
        return None if quality is None else cron.check(quality)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.has_a_cause and self.gpu_hours is None:
            raise ValueError(f"expected one or more of {', '.join(CAUSES)}")  # without any the field has no effect
        return self

    @property
    def has_a_cause(self) -> bool:
        """Whether the section starts trainings; otherwise it only limits those of the schedule."""
        return any(getattr(self, name) is not None for name in CAUSES)

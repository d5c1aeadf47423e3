"""The section `renewal` of a training: what starts it anew beside its schedule, and what all of it may take."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from slipway.recipes import cron
from slipway.recipes.parts import RecipeSection

Positive = Annotated[float, Field(gt=0)]
CAUSES = ("new_data", "drift", "live_drift", "quality")


class RenewalSection(RecipeSection):
    """When a training starts anew by itself: on new data, on drift of them or of what people ask, and when the champion
    has become worse."""

    new_data: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of documents, between 0 and 1, that are new since the newest training's snapshot, from which on it
    starts; null for never."""
    drift: Positive | None = None
    """The population stability index of the documents' lengths or languages (of pictures: of their classes), from the
    newest training's snapshot to the current one, from which on it starts; null for never. Above 0.25 counts as a
    large change. `checks.drift` of a dataset compares with the snapshot before: many small steps pass that, and add
    up here."""
    live_drift: Positive | None = None
    """The population stability index of the languages or tokens of what the served champion was asked in the last
    7 days, against the documents that it was trained on, from which on it starts, once there is a snapshot that is
    newer than the newest training's; null for never. It takes 200 questions."""
    quality: str | None = None
    """When the champion is measured on the current snapshot: a cron string, or null for never. If it is worse there
    than on record by more than both intervals, the champion before it comes back where that is better, and a training
    starts."""
    cool_down_hours: Annotated[float, Field(ge=0)] = 24.0
    """So many hours pass after any training of the recipe was first wanted before another one starts so."""
    gpu_hours: Positive | None = None
    """The most rank-hours of all trainings of the recipe in the last 30 days with which another one is started, by its
    schedule (`retrain`) too; null for no limit."""
    from_champion: bool = False
    """Whether it begins with the champion's weights, where they fit, instead of the recipe's."""

    @field_validator("quality")
    @classmethod
    def _is_cron(cls, quality: str | None) -> str | None:
        return None if quality is None else cron.check(quality)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.has_a_cause and self.gpu_hours is None:
            raise ValueError(f"expected one or more of {', '.join(CAUSES)}")  # without one it starts nothing
        return self

    @property
    def has_a_cause(self) -> bool:
        """Whether it starts a training; else it only bounds those of the schedule."""
        return any(getattr(self, name) is not None for name in CAUSES)

"""Settings of costs: what a rank-hour costs, and how many of them each team may use.

On a cluster they are sections of the platform's settings; of an embedded instance, the file ``costs.yaml`` in its home,
whose first line is ``slipway: costs/1``.
"""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from slipway.recipes.parts import RecipeSection, Text
from slipway.resources import settings_file, teams
from slipway.resources.teams import TeamName, TeamSettings
from slipway.resources.trainings.accounts import Prices
from slipway.resources.trainings.quotas import Quota
from slipway.trainer.base.invalid import require

FILE = "costs.yaml"


class PriceSettings(RecipeSection):
    """What a rank costs for an hour: its GPU with its part of the node."""

    currency: Text = "EUR"
    """The currency's name, as it is shown."""
    on_demand: Annotated[float, Field(ge=0)]
    """For all other trainings."""
    spot: Annotated[float, Field(ge=0)]
    """For trainings with `placement.kubernetes.spot`."""


class CostSettings(RecipeSection):
    """What rank-hours cost, and who may use how many."""

    FORMAT: ClassVar = "costs/1"

    prices: PriceSettings | None = None
    """What a rank-hour costs; without it, costs are given in rank-hours alone."""
    teams: dict[TeamName, TeamSettings] = Field(default_factory=dict)
    """Quotas and prices of teams; a team that is not named has no quota, and pays what everybody pays."""

    @model_validator(mode="after")
    def _knows_the_currency(self) -> Self:
        own = next((name for name, team in self.teams.items() if team.prices), "")
        expected = f"expected the prices of all others, with the currency, since the team {own} has prices of its own"
        require(self.prices is not None or not own, "prices", expected)
        return self

    @property
    def rank_prices(self) -> Prices | None:
        """The prices as a fact; None where none are set."""
        return Prices(**self.prices.model_dump(), teams=teams.prices(self.teams)) if self.prices else None

    @property
    def quotas(self) -> dict[str, Quota]:
        """The quotas, by owner."""
        return teams.quotas(self.teams)


def of_home(home: Path) -> CostSettings:
    """The settings of an embedded instance; no prices and no teams without the file. Raises InvalidRecipes."""
    path = home / FILE
    if not path.exists():
        return CostSettings()
    return settings_file.load(path, CostSettings, CostSettings.FORMAT, "the settings of costs")

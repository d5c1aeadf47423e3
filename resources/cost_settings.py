"""Cost settings: the price of a rank-hour, and the number of rank-hours that each team may use.

On a cluster they are sections of the platform's settings. An embedded instance reads them from the file ``costs.yaml``
in its home, whose first line is ``slipway: costs/1``.
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
    """The price of one rank for one hour: its GPU and its share of the node."""

    currency: Text = "EUR"
    """The name of the currency, as pages and reports show it."""
    on_demand: Annotated[float, Field(ge=0)]
    """The price for trainings without `placement.kubernetes.spot`."""
    spot: Annotated[float, Field(ge=0)]
    """The price for trainings with `placement.kubernetes.spot`."""


class CostSettings(RecipeSection):
    """The prices of rank-hours, and the quotas of teams."""

    FORMAT: ClassVar = "costs/1"

    prices: PriceSettings | None = None
    """The price of a rank-hour. Without it, reports give costs in rank-hours only."""
    teams: dict[TeamName, TeamSettings] = Field(default_factory=dict)
    """Quotas and prices of teams. A team that is not listed has no quota and pays the general prices."""

    @model_validator(mode="after")
    def _knows_the_currency(self) -> Self:
        own = next((name for name, team in self.teams.items() if team.prices), "")
        expected = f"expected general prices and their currency, since the team {own} has prices of its own"
        require(self.prices is not None or not own, "prices", expected)
        return self

    @property
    def rank_prices(self) -> Prices | None:
        """The prices as a frozen value, or None if none are set."""
        return Prices(**self.prices.model_dump(), teams=teams.prices(self.teams)) if self.prices else None

    @property
    def quotas(self) -> dict[str, Quota]:
        """The quotas, by owner."""
        return teams.quotas(self.teams)


def of_home(home: Path) -> CostSettings:
    """The settings of an embedded instance; without the file, no prices and no teams. Raises InvalidRecipes."""
    path = home / FILE
    if not path.exists():
        return CostSettings()
    return settings_file.load(path, CostSettings, CostSettings.FORMAT, "the settings of costs")

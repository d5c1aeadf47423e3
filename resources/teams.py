"""Teams: the quota and the prices of each team in the platform's settings.

A team is an owner in recipes: the owner `team:research` is `research` in the settings. A person is an email address.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from slipway.recipes.parts import RecipeSection
from slipway.resources.trainings.accounts import RankPrice
from slipway.resources.trainings.quotas import Quota

PREFIX = "team:"


def _team_name(name: str) -> str:
    if name.startswith(PREFIX):
        raise ValueError(f"expected the name without {PREFIX}")
    if not name or any(map(str.isspace, name)):
        raise ValueError("expected a name without spaces, or an email address")
    return name


TeamName = Annotated[str, AfterValidator(_team_name)]
"""A settings field for the name of a team, or the email address of a person."""


class QuotaSettings(RecipeSection):
    """The quota of a team."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    rank_hours: Annotated[float, Field(gt=0)]
    """The number of rank-hours. A rank is one GPU with its share of the node."""
    per: Literal["day", "week", "month"] = "month"
    """The calendar period of the quota, in UTC. A week begins on Monday."""


class TeamPriceSettings(RecipeSection):
    """The team's own price of a rank-hour, in the currency of the general `prices`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    on_demand: Annotated[float, Field(ge=0)]
    """The price for trainings without `placement.kubernetes.spot`."""
    spot: Annotated[float, Field(ge=0)]
    """The price for trainings with `placement.kubernetes.spot`."""


class TeamSettings(RecipeSection):
    """The quota and the prices of one team, for its trainings and trials."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    quota: QuotaSettings | None = None
    """The team's quota; without it, the team's usage is not limited."""
    prices: TeamPriceSettings | None = None
    """The team's own prices; without them, the general prices apply."""


def owner(name: str) -> str:
    """The owner in recipes for a name in the settings."""
    return name if "@" in name else f"{PREFIX}{name}"


def quotas(teams: dict[str, TeamSettings]) -> dict[str, Quota]:
    """The quotas, by owner."""
    return {owner(name): Quota(team.quota.rank_hours, team.quota.per) for name, team in teams.items() if team.quota}


def prices(teams: dict[str, TeamSettings]) -> dict[str, RankPrice]:
    """The prices of the teams that have their own, by owner."""
    return {owner(name): RankPrice(**team.prices.model_dump()) for name, team in teams.items() if team.prices}

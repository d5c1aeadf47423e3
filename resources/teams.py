"""Teams: what the platform's settings say of each team: its quota, and what a rank-hour costs it.

A team is the owner that recipes name: `team:research` there is `research` here; a person is the email address.
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
"""The name of a team in the settings, or a person's address."""


class QuotaSettings(RecipeSection):
    """How much a team may use."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    rank_hours: Annotated[float, Field(gt=0)]
    """Hours of ranks, each of which holds a GPU or its part of a node."""
    per: Literal["day", "week", "month"] = "month"
    """The period of the calendar, in UTC, in which it may use them; a week begins on Monday."""


class TeamPriceSettings(RecipeSection):
    """What a rank costs a team for an hour, in the currency of `prices`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    on_demand: Annotated[float, Field(ge=0)]
    """For all other trainings."""
    spot: Annotated[float, Field(ge=0)]
    """For trainings with `placement.kubernetes.spot`."""


class TeamSettings(RecipeSection):
    """What holds for the trainings and trials of one team."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    quota: QuotaSettings | None = None
    """Without it, the team may use what there is."""
    prices: TeamPriceSettings | None = None
    """Without it, the team pays what everybody pays."""


def owner(name: str) -> str:
    """The owner in recipes that a name in the settings means."""
    return name if "@" in name else f"{PREFIX}{name}"


def quotas(teams: dict[str, TeamSettings]) -> dict[str, Quota]:
    """The quotas, by owner."""
    return {owner(name): Quota(team.quota.rank_hours, team.quota.per) for name, team in teams.items() if team.quota}


def prices(teams: dict[str, TeamSettings]) -> dict[str, RankPrice]:
    """The prices of the teams that have their own, by owner."""
    return {owner(name): RankPrice(**team.prices.model_dump()) for name, team in teams.items() if team.prices}

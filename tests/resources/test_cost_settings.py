"""Prices and quotas of an embedded instance stand in its home, and hold there as on a cluster."""

from pathlib import Path

import pytest

from slipway.recipes.problems import InvalidRecipes
from slipway.resources import cost_settings
from slipway.resources.cost_settings import CostSettings
from slipway.resources.home import Home
from slipway.resources.resource_sets import embedded_resources
from slipway.resources.trainings.accounts import RankPrice
from slipway.resources.trainings.quotas import Quota

SETTINGS = """slipway: costs/1
prices: {currency: CHF, on_demand: 2.0, spot: 0.5}
teams:
  research: {quota: {rank_hours: 5, per: day}, prices: {on_demand: 1.0, spot: 0.2}}
"""


def test_a_home_without_the_file_has_neither_prices_nor_quotas(tmp_path: Path):
    assert cost_settings.of_home(tmp_path) == CostSettings()
    assert (CostSettings().rank_prices, CostSettings().quotas) == (None, {})


def test_the_file_gives_the_prices_of_all_and_of_a_team(tmp_path: Path):
    (tmp_path / cost_settings.FILE).write_text(SETTINGS)
    prices = cost_settings.of_home(tmp_path).rank_prices
    assert prices is not None and prices.currency == "CHF"
    assert prices.of("team:research") == RankPrice(1.0, 0.2)
    assert prices.of("ada@example.org") == RankPrice(2.0, 0.5)


def test_the_launches_of_an_embedded_instance_ask_the_quotas(tmp_path: Path):
    (tmp_path / cost_settings.FILE).write_text(SETTINGS)
    assert cost_settings.of_home(tmp_path).quotas == {"team:research": Quota(5.0, "day")}
    compute = embedded_resources(Home(tmp_path))["compute"]
    assert compute.rank_hours == {"team:research": {"rank_hours": 5.0, "per": "day"}}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slipway: notifications/1\n", 'costs.yaml:1: slipway: found "notifications/1", expected costs/1'),
        ("slipway: costs/1\nprice: 3\n", "costs.yaml:2: price: found an unknown field (did you mean prices?)"),
        (
            "slipway: costs/1\nteams:\n  a: {prices: {on_demand: 1, spot: 1}}\n",
            "costs.yaml:1: prices: found null, expected general prices",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_field(tmp_path: Path, text: str, message: str):
    (tmp_path / cost_settings.FILE).write_text(text)
    with pytest.raises(InvalidRecipes) as refused:
        cost_settings.of_home(tmp_path)
    assert message in str(refused.value)

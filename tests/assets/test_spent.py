"""Spent: where prices are set, the UI shows a training's money in all and by day, beside what the other nodes cost."""

import datetime
from pathlib import Path

import pytest

from slipway.assets import spent
from slipway.resources.trainings.accounts import CostShare, TrainingCost
from slipway.trainer.record.accounting import buckets

DAYS = [datetime.date(2026, 1, day) for day in (1, 2)]
COST = TrainingCost(tuple(CostShare(day, buckets.STEPS, 10.0) for day in DAYS), spot=True)
SETTINGS = """slipway: platform/1
prices: {currency: EUR, on_demand: 2.0, spot: 0.5}
tiers: {durable: /mnt/durable, nvme: /mnt/nvme}
tracking: {uri: "http://mlflow:5000"}
compute: {cluster: {image: trainer}}
"""


def test_without_prices_rank_hours_alone_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SLIPWAY_PLATFORM", raising=False)
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    assert spent.cost(COST) == {"rank_hours": 20.0, "spot": True}


def test_an_embedded_instance_has_its_prices_in_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SLIPWAY_PLATFORM", raising=False)
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    (tmp_path / "costs.yaml").write_text("slipway: costs/1\nprices: {on_demand: 2.0, spot: 0.5}\n")
    assert spent.cost(COST)["money"] == 10.0


def test_with_prices_money_is_shown_by_day_beside_that_of_nodes_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "platform.yaml").write_text(SETTINGS)
    monkeypatch.setenv("SLIPWAY_PLATFORM", str(tmp_path / "platform.yaml"))
    metadata = spent.cost(COST)
    assert (metadata["money"], metadata["money_on_demand"], metadata["currency"]) == (10.0, 40.0, "EUR")
    assert "| 2026-01-02 | 5.00 |" in metadata["money_by_day"].value


def test_the_price_of_a_sweeps_hours_is_told_beside_that_of_the_other_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SLIPWAY_PLATFORM", raising=False)
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    assert spent.money(10.0, spot=False, owner="") == {}
    (tmp_path / "costs.yaml").write_text("slipway: costs/1\nprices: {on_demand: 2.0, spot: 0.5}\n")
    assert spent.money(10.0, spot=False, owner="") == {"money": 20.0, "money_on_spot": 5.0, "currency": "EUR"}

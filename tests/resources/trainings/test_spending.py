"""Spending: what all trainings and trials held from a day on, read in proportion to what is new."""

import datetime
import os
import time
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.trainings import accounts, spending
from slipway.resources.trainings.accounts import CostSubject, Prices, RankPrice
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.spending import SpendingReader, SpentLine
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.record import files, ledger
from slipway.trainer.record.accounting import buckets
from tests.resources.trainings import ledgers

DAY = datetime.date(2026, 11, 20)
PRICES = Prices("EUR", on_demand=2.0, spot=0.5, teams={"team:b": RankPrice(on_demand=1.0, spot=0.25)})


def line(hours: float, team: str = "team:a", spot: bool = False, **fields: Any) -> SpentLine:
    subject = CostSubject("tiny", fields.get("sweep", ""), fields.get("trial"), team, fields.get("cause", ""))
    return SpentLine("tiny-1", subject, spot, fields.get("day", DAY), buckets.STEPS, hours)


def test_a_sum_has_hours_of_both_kinds_of_nodes_and_what_all_would_have_cost_on_either():
    lines = [line(10.0), line(4.0, spot=True), line(8.0, "team:b"), line(1.0, "")]
    [first, second] = spending.sums(lines, lambda spent: spent.subject.team, PRICES)
    assert (first.what, first.on_demand, first.spot) == ("team:a", 10.0, 4.0)
    assert (first.money, first.all_on_demand, first.all_on_spot) == (22.0, 28.0, 7.0)
    assert (second.what, second.money, second.all_on_spot) == ("team:b", 8.0, 2.0)


def test_without_prices_no_money_is_told():
    [total] = spending.sums([line(10.0)], lambda spent: spent.subject.recipe, None)
    assert (total.rank_hours, total.money, total.all_on_spot) == (10.0, None, None)


def soon() -> float:
    """When all is over that `used` has written: its hours are milliseconds of the clock, and a test is as fast."""
    return time.time() + 1.0


def used(root: Trainings, cause: str, hours: float, owner: str = "team:a") -> TrainingStore:
    run_policy = RunPolicy(1, 1, ledgers.RANKS, 60.0, 3, owner=owner)
    store = root.propose(Specification("tiny", {"run": {"steps": 9}}, "0" * 64, "1" * 64, cause), run_policy)
    root.start(store, "ada", "the test wants it")
    ledgers.spent(store, hours)
    return store


def test_trainings_and_trials_are_read_with_their_team_and_their_sweep(tmp_path: Path):
    own = used(Trainings(tmp_path / "trainings"), "", 2.0)
    trial = used(Trainings(tmp_path / "sweeps" / "search-0123" / "trials"), "", 3.0)
    trial.folder.rename(trial.folder.with_name("search-0123.7"))
    spending_read = SpendingReader(tmp_path).since(DAY, soon())
    hours = {
        spending_line.what: spending_line.rank_hours
        for spending_line in spending.sums(spending_read.lines, lambda total: total.training, None)
    }
    assert hours == {own.id: pytest.approx(2.0, rel=0.01), "search-0123.7": pytest.approx(3.0, rel=0.01)}
    assert {(spent.subject.team, spent.subject.sweep) for spent in spending_read.lines} == {
        ("team:a", ""),
        ("team:a", "search-0123"),
    }
    assert spending_read.unreadable == ()


def test_what_ended_before_the_day_is_not_read_and_what_has_not_changed_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = Trainings(tmp_path / "trainings")
    old, new = used(root, "old", 1.0), used(root, "new", 1.0)
    for path in ledger.segments(old.folder):
        os.utime(path, (1.6e9, 1.6e9))
    read, of_if_any = list[Path](), accounts.of_if_any

    def noted(folder: Path, now: float | None = None) -> Any:
        read.append(folder)
        return of_if_any(folder, now)

    monkeypatch.setattr(accounts, "of_if_any", noted)
    reader = SpendingReader(tmp_path)
    for _ in range(3):
        spending_read = reader.since(DAY, soon())
        assert {spent.training for spent in spending_read.lines} == {new.id}
    assert read == [new.folder]


def test_what_cannot_be_read_is_told_and_the_others_are_counted(tmp_path: Path):
    root = Trainings(tmp_path / "trainings")
    readable, damaged = used(root, "whole", 1.0), used(root, "damaged", 1.0)
    (damaged.folder / files.LEDGER).rename(damaged.folder / "elsewhere")
    (damaged.folder / files.LEDGER).write_bytes(b"")
    spending_read = SpendingReader(tmp_path).since(DAY, soon())
    assert {spent.training for spent in spending_read.lines} == {readable.id}
    assert [problem.startswith(f"{damaged.id}: ") for problem in spending_read.unreadable] == [True]

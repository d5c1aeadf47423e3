"""Quotas: a team that has used its rank-hours begins nothing more until the next period; what has begun goes on."""

import datetime
from pathlib import Path

import pytest

from slipway.resources.trainings import quotas
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.quotas import Quota, Quotas, period
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from tests.resources.trainings.clock import Clock
from tests.resources.trainings.lab import BY, Lab, numbers
from tests.resources.trainings.ledgers import RANKS, spent

TEAM = "team:ours"


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


def started_training(root: Path, name: str, owner: str = TEAM) -> TrainingStore:
    run_policy = RunPolicy(1, 1, RANKS, 60.0, 3, owner=owner)
    store = Trainings(root / "durable" / "trainings").propose(Specification(name, numbers(9), "0" * 64, ""), run_policy)
    store.want("run", BY, "the test wants it")
    return store


@pytest.fixture(autouse=True)
def _read_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quotas, "LASTS_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("per", "begins", "ends"),
    [("day", "2026-12-31", "2027-01-01"), ("week", "2026-12-28", "2027-01-04"), ("month", "2026-12-01", "2027-01-01")],
)
def test_a_period_is_one_of_the_calendar(per: str, begins: str, ends: str):
    assert period(day("2026-12-31"), per) == (day(begins), day(ends))


def test_a_team_that_has_used_its_quota_waits_and_is_told_how_much_and_until_when(tmp_path: Path):
    now = spent(started_training(tmp_path, "done"), hours=3.0)
    store, team_quotas = started_training(tmp_path, "next"), Quotas(tmp_path / "durable", {TEAM: Quota(2.0, "month")})
    ends = period(datetime.datetime.fromtimestamp(now, datetime.UTC).date(), "month")[1]
    assert team_quotas.holds_back(store.read(), now) == (
        f"the quota of team:ours: 3.0 of 2.0 rank-hours of this month are used, 0.0 are left until {ends} 00:00 UTC"
    )
    assert team_quotas.holds_back(store.read(), now + 32 * 86_400) == ""


def test_a_quota_holds_back_nobody_else_and_nothing_while_some_of_it_is_left(tmp_path: Path):
    now = spent(started_training(tmp_path, "done"), hours=3.0)
    small, large = ({TEAM: Quota(hours, "month")} for hours in (2.0, 4.0))
    other_training, own_training = (
        started_training(tmp_path, "theirs", "team:theirs"),
        started_training(tmp_path, "next"),
    )
    assert Quotas(tmp_path / "durable", small).holds_back(other_training.read(), now) == ""
    assert Quotas(tmp_path / "durable", large).holds_back(own_training.read(), now) == ""
    assert Quotas(tmp_path / "durable", large).standing(TEAM, now).remaining == pytest.approx(1.0, rel=0.05)


def test_a_training_that_failed_is_started_again_whatever_its_team_has_used(tmp_path: Path):
    store = started_training(tmp_path, "running")
    now = spent(store, hours=3.0, outcome="failed")
    team_quotas = Quotas(tmp_path / "durable", {TEAM: Quota(2.0, "month")})
    assert team_quotas.holds_back(store.read(), now) == ""
    store.want("stop", BY, "a person stops it")
    store.want("run", BY, "a person wants it again")
    assert "team:ours" in team_quotas.holds_back(store.read(), now)


def test_what_a_trial_used_counts_for_the_team_of_its_terms(tmp_path: Path):
    store = started_training(tmp_path, "tiny")
    now = spent(store, hours=3.0)
    trials = tmp_path / "durable" / "sweeps" / "search-0123" / "trials"
    trials.mkdir(parents=True)
    store.folder.rename(trials / "search-0123.7")
    assert Quotas(tmp_path / "durable", {TEAM: Quota(2.0, "month")}).standing(TEAM, now).used == pytest.approx(
        3.0, rel=0.01
    )


def test_the_state_machine_waits_for_a_quota_says_so_and_begins_once_there_is_one(lab: Lab, clock: Clock):
    store = started_training(lab.root, "next")
    clock.now = spent(started_training(lab.root, "done"), hours=3.0)
    control = lab.control(clock=clock, quotas=Quotas(lab.durable, {TEAM: Quota(2.0, "day")}))
    assert control.advance(store, BY) is Action.WAIT
    waiting = control.waiting(store.read())
    assert waiting is not None and "3.0 of 2.0 rank-hours of this day" in waiting.reason
    assert store.newest_claim() is None and store.exit() is None
    clock.now += 86_400
    assert control.advance(store, BY) is Action.CLAIM

"""Accounts: a training's records are read into one account, in proportion to what is new in its ledger."""

import datetime
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.trainings import account_tables, accounts
from slipway.resources.trainings.accounts import Prices, cost_if_any, cost_subject
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.quotas import Quota, QuotaStatus
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import journal
from slipway.trainer.record import fence
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.effective_time import effective_time
from slipway.trainer.record.fence import Token
from tests.cli import homes
from tests.conftest import Marked, until
from tests.resources.trainings.lab import ENDLESS, Lab, happened, numbers, until_committed


def write(folder: Path, token: Token, *events: dict[str, Any]) -> None:
    with journal.Journal(folder / "ledger" / f"{token}.rank-0.jsonl", durable=False) as log:
        log.append(*events)


def test_an_account_joins_what_was_wanted_with_what_the_ranks_wrote(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    store.mark_submitted(1)
    account = accounts.of(store.folder)
    begun = account.end
    assert set(account.seconds) <= {buckets.WAITING, buckets.QUEUE}
    write(store.folder, Token(1), {"event": "phase", "t": begun, "phase": "training", "since": begun})
    write(store.folder, Token(1), *({"event": "step", "t": begun + at, "step": at, "loss": 1.0} for at in (1, 2, 3)))
    account = accounts.of(store.folder, now=begun + 3)
    assert account.seconds[buckets.STEPS] == pytest.approx(3)
    assert sum(account.seconds.values()) == pytest.approx(account.wall)


def test_the_end_of_a_job_counts_from_its_launchers_record_and_not_from_when_it_was_seen(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    store.mark_submitted(1)
    begun = accounts.of(store.folder).end
    write(store.folder, Token(1), {"event": "step", "t": begun, "step": 1, "loss": 1.0})
    store.record_exit(1, "failed", "a test", "watch", ended_at=begun + 10, kind="disrupted")
    history = accounts._history(store.folder)
    assert history.ended == {1: pytest.approx(begun + 10)}
    assert [wish.run for wish in history.wishes] == [True]


def test_a_long_ledger_is_read_once_and_then_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    write(store.folder, Token(1), *({"event": "step", "t": 1e9 + at, "step": at, "loss": 1.0} for at in range(1, 6000)))
    before = accounts.folded(store.folder)
    assert (store.folder / accounts.ACCOUNTS_FILE).exists()
    offsets, read = [], journal.read

    def noted(path: Path, offset: int = 0, at_most: int = -1) -> journal.JournalReading:
        offsets.append(offset)
        return read(path, offset, at_most)

    monkeypatch.setattr("slipway.trainer.base.journal.read", noted)
    assert accounts.folded(store.folder) == before
    assert 0 not in offsets
    write(store.folder, Token(1), {"event": "step", "t": 1e9 + 6000, "step": 6000, "loss": 1.0})
    (leader,) = [segment for name, segment in accounts.folded(store.folder).segments.items() if "rank-0" in name]
    assert leader.fold.stretches[-1].last == 6000


def test_a_damaged_cache_costs_a_reading_and_nothing_else(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    write(store.folder, Token(1), *({"event": "step", "t": 1e9 + at, "step": at, "loss": 1.0} for at in range(1, 6000)))
    before = accounts.folded(store.folder)
    (store.folder / accounts.ACCOUNTS_FILE).write_bytes(b"{}")
    assert accounts.folded(store.folder) == before


def test_what_was_away_is_in_the_history(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    store.note_away(600.0, "job watch")
    ((begin, end),) = accounts._history(store.folder).away
    assert end - begin == pytest.approx(600)


def test_sql_answers_over_the_accounts_of_all_trainings(tmp_path: Path) -> None:
    home = homes.home(tmp_path)
    for name in ("tiny", "other"):
        store = homes.running(home, name)
        begun = accounts.of(store.folder).end
        write(store.folder, Token(1), {"event": "step", "t": begun, "step": 1, "loss": 1.0})
        ended = store.exit_of(1, "failed", "a test", "watch", ("node-1", "node-2"), True, "disrupted")
        assert fence.claim(store.folder, Token(2), nodes=(), cause="a test", by="watch", ended=ended)
    stores = list(homes._trainings(home).stores())
    names, rows, _ = account_tables.ask(
        stores, "SELECT node, cause, count(DISTINCT training) AS n FROM lost GROUP BY ALL"
    )
    assert names == ["node", "cause", "n"]
    assert sorted(rows) == [("node-1", "disrupted", 2), ("node-2", "disrupted", 2)]
    sums = "SELECT training, sum(seconds) AS s FROM spent GROUP BY training"
    off = f"SELECT training FROM trainings JOIN ({sums}) USING (training) WHERE abs(s - wall_seconds) > 0.001 * s"
    assert account_tables.ask(stores, off)[1] == []
    with pytest.raises(ValueError, match="query 'SELECT'"):
        account_tables.ask(stores, "SELECT")
    with pytest.raises(ValueError, match="disabled"):
        account_tables.ask(stores, "SELECT * FROM read_text('/etc/hostname')")


def test_costs_are_reported_by_team_and_cause_and_interruptions_by_why_they_happened(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    store.mark_submitted(1)
    begun = accounts.of(store.folder).end
    steps = ({"event": "step", "t": begun + at / 100, "step": at, "loss": 1.0} for at in (1, 2, 3))
    write(store.folder, Token(1), {"event": "phase", "t": begun, "phase": "training", "since": begun}, *steps)
    ended = store.exit_of(1, "failed", "a test", "watch", ("node-1",), True, "disrupted")
    assert fence.claim(store.folder, Token(2), nodes=(), cause="a test", by="watch", ended=ended)
    owners, prices = {store.specification().recipe: "team:ours"}, Prices("EUR", on_demand=2.0, spot=0.5)
    query = "SELECT team, recipe, cause, sweep, trial, sum(rank_hours), sum(money) FROM cost GROUP BY ALL"
    [(team, recipe, cause, sweep, trial, hours, money)] = account_tables.ask([store], query, prices, owners)[1]
    assert (team, recipe, cause, sweep, trial) == ("team:ours", "tiny", "", "", None)
    assert hours > 0 and money == pytest.approx(2 * hours)
    query = "SELECT team, cause, sum(rank_hours), sum(money) FROM lost GROUP BY ALL"
    [(team, cause, hours, money)] = account_tables.ask([store], query, prices, owners)[1]
    assert (team, cause) == ("team:ours", "disrupted")
    assert money == pytest.approx(2 * hours)


def test_quotas_are_a_table_beside_what_was_spent() -> None:
    day, end = datetime.date(2026, 11, 1), datetime.date(2026, 12, 1)
    quota = QuotaStatus("team:ours", Quota(5.0, "month"), day, end, used=2.0)
    query = "SELECT team, per, ends, rank_hours, used, remaining FROM quotas"
    assert account_tables.ask([], query, quotas=[quota])[1] == [("team:ours", "month", end, 5.0, 2.0, 3.0)]


def test_a_trials_cost_is_its_sweeps_and_of_the_sweeps_team(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny")
    moved_folder = tmp_path / "sweeps" / "search-0123" / "trials" / "search-0123.7"
    moved_folder.parent.mkdir(parents=True)
    store.folder.rename(moved_folder)
    subject = cost_subject(TrainingStore(moved_folder), {"search": "team:theirs", "tiny": "team:ours"})
    assert (subject.recipe, subject.sweep, subject.trial, subject.team) == ("tiny", "search-0123", 7, "team:theirs")


def stored_training(root: Trainings, recipe: str, cause: str = "", **origin: str) -> TrainingStore:
    """A training of two ranks that has succeeded."""
    run_policy = RunPolicy(1, 2, 1, 60.0, 3, origin=origin)
    store = root.propose(Specification(recipe, {"run": {"steps": 9}}, "0" * 64, "1" * 64, cause), run_policy)
    root.start(store, "ada", "the test wants it")
    assert store.claim(1, ("node-0", "node-1"), "first start", "ada")
    begun = accounts.of(store.folder).end
    step = {"event": "step", "t": begun, "step": 1, "loss": 1.0}
    write(store.folder, Token(1), {"event": "phase", "t": begun, "phase": "training", "since": begun}, step)
    store.record_exit(1, "succeeded", "", "ada")
    return store


def test_costs_add_up_by_training_trial_team_and_cause(tmp_path: Path) -> None:
    own, sweep = Trainings(tmp_path / "trainings"), Trainings(tmp_path / "sweeps" / "search-0123" / "trials")
    ticks = [stored_training(own, "tiny", f"2026-01-{day}T03:00:00+00:00", schedule=day) for day in ("04", "11")]
    by_hand, again = stored_training(own, "tiny"), stored_training(own, "tiny", "to be sure")
    fall, trial = (
        stored_training(own, "other", "quality 0123456789ab", renewal="quality"),
        stored_training(sweep, "tiny", sweep="search"),
    )
    trial = TrainingStore(trial.folder.rename(trial.folder.with_name("search-0123.7")))
    owners, prices = {"tiny": "team:a", "other": "team:b", "search": "team:c"}, Prices("EUR", on_demand=2.0, spot=0.5)

    def sums(column: str) -> dict[str | int | None, float]:
        query = f"SELECT {column}, sum(rank_hours), sum(money) FROM cost GROUP BY ALL"
        rows = account_tables.ask([*ticks, by_hand, again, fall, trial], query, prices, owners)[1]
        assert all(money == pytest.approx(2 * hours) for _, hours, money in rows)
        return {name: hours for name, hours, _ in rows}

    def of(*stores: TrainingStore) -> Any:
        hours = [cost.rank_hours for store in stores if (cost := cost_if_any(store.folder)) is not None]
        assert len(hours) == len(stores) and min(hours) > 0
        return pytest.approx(sum(hours))

    assert sums("cause") == {
        "schedule": of(*ticks),
        "": of(by_hand),
        "again": of(again),
        "quality": of(fall),
        "sweep": of(trial),
    }
    assert sums("team") == {"team:a": of(*ticks, by_hand, again), "team:b": of(fall), "team:c": of(trial)}
    assert sums("trial") == {None: of(*ticks, by_hand, again, fall), 7: of(trial)}
    assert sums("training") == {store.id: of(store) for store in (*ticks, by_hand, again, fall, trial)}


@pytest.mark.slow
def test_a_training_that_was_killed_twice_is_accounted_for_to_the_second(lab: Lab, marked: Marked) -> None:
    """The wall clock is this test's own: from when it wants the training to when it sees the end."""
    before = time.time()
    store = lab.start_training(numbers(ENDLESS))
    begun = time.time()
    lab.advance(store, Action.SUBMIT)
    for start in (1, 2, 3):  # the supervisor or the control plane starts it again
        until(lambda start=start: len(happened(store, "stepped")) >= start, f"step of start {start}")  # type: ignore[misc]
        until_committed(store, start)
        if start < 3:
            [rank] = marked.running("slipway.trainer")
            os.kill(rank, signal.SIGKILL)
    lab.stopped(store)
    looked_at, account = time.time(), accounts.of(store.folder)
    assert sum(account.seconds.values()) == pytest.approx(account.wall, rel=1e-3)
    assert before <= account.begin <= begun and begun < account.end <= looked_at
    assert len(account.interruptions) == 2
    incarnation_by_step = {event["step"]: event["incarnation"] for event in happened(store, "step")}
    assert (account.seconds.get("repeated", 0.0) > 0) == (len(happened(store, "step")) > len(incarnation_by_step))
    assert {"steps", "starting"} <= set(account.seconds)
    # None is in the queue where the process began before the control plane had written that it was submitted.
    imports = account.seconds.get("queue", 0.0) + account.seconds["starting"]
    assert imports > 1.0, "three processes have imported torch"
    figures = effective_time(account)
    assert 0 < (figures.goodput or 0) <= (figures.ettr_meta or 0) < 1

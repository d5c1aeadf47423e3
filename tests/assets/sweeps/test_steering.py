"""Steering: what a person may ask of a sweep while it runs, and what is refused before anything is asked."""

from pathlib import Path

import pytest

from slipway.assets.sweeps import steering
from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from tests.assets.sweeps.simulation import budgeted, opened

BY, WHY = "ada", "a test"


@pytest.fixture
def store(tmp_path: Path) -> SweepStore:
    """An open sweep of eight trials."""
    sweep_store = SweepStore(tmp_path / "curves-000000000000")
    sweep_store.create({"name": "curves"})
    sweep_store.open(opened(), budgeted())
    return sweep_store


def state(store: SweepStore) -> SweepState:
    current = store.state()
    assert current is not None
    return current


def test_a_paused_sweep_is_paused_for_all_readers_until_it_is_resumed(store: SweepStore):
    steering.pause(store, BY, WHY)
    pause = state(store).pause
    assert pause is not None and (pause.by, pause.why) == (BY, WHY)
    steering.resume(store, BY, WHY)
    assert state(store).pause is None
    with pytest.raises(ValueError, match="found it under way, expected a paused one"):
        steering.resume(store, BY, WHY)


def test_trials_that_are_added_are_the_same_sweeps(store: SweepStore):
    assert steering.add(store, 4, BY, WHY) == {"trials": (8, 12)}
    assert state(store).budget.trials == 12
    with pytest.raises(ValueError, match="trials: found 0, expected 1 or more"):
        steering.add(store, 0, BY, WHY)


def test_what_a_sweep_may_spend_is_changed_by_the_names_of_its_recipe(store: SweepStore):
    fields = ["parallel=8", "limits.retries=2", "limits.failed_trials=3", "goal.at_most=1.5"]
    assert steering.spend(store, fields, BY, WHY)["parallel"] == (3, 8)
    budget = state(store).budget
    assert (budget.parallel, budget.retries, budget.failed_trials, budget.goal) == (8, 2, 3, 1.5)
    assert (budget.by, budget.why) == (BY, WHY)


@pytest.mark.parametrize(
    ("field", "refusal"),
    [
        (
            "seed=3",
            "seed: found 3, expected one of trials, parallel, limits.retries, limits.failed_trials, goal.at_most",
        ),
        ("parallel=0", "parallel: found 0, expected a whole number, 1 or more"),
        ("limits.retries=some", "limits.retries: found 'some', expected a whole number, 0 or more"),
        ("goal.at_most=low", "goal.at_most: found 'low', expected a finite number or null"),
        ("goal.at_most=1e999", "goal.at_most: found inf, expected a finite number or null"),
    ],
)
def test_what_decides_the_sweep_and_what_is_no_amount_is_refused(store: SweepStore, field: str, refusal: str):
    before = state(store).budget
    with pytest.raises(ValueError, match="found") as refused:
        steering.spend(store, ["trials=9", field], BY, WHY)
    assert refusal in str(refused.value)
    assert state(store).budget == before


def test_a_request_to_spend_otherwise_that_names_nothing_is_refused(store: SweepStore):
    with pytest.raises(ValueError, match="fields: found none, expected FIELD=VALUE of trials, parallel"):
        steering.spend(store, [], BY, WHY)


def test_a_stopped_sweep_is_over_and_a_complete_one_may_get_more(store: SweepStore):
    store.append(closing(state(store), "complete"))
    with pytest.raises(ValueError, match="found it complete, expected one that is under way"):
        steering.pause(store, BY, WHY)
    steering.add(store, 1, BY, WHY)
    assert state(store).closed is None
    steering.stop(store, BY, WHY)
    closed = state(store).closed
    assert closed is not None and (closed.outcome, closed.reason) == ("stopped", WHY)
    with pytest.raises(ValueError, match="found it stopped, expected one that may go on"):
        steering.add(store, 1, BY, WHY)

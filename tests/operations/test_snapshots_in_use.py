"""Snapshots in use: those of all that may go on, so that none of it finds its data gone."""

from pathlib import Path

import pytest

from slipway.assets.sweeps.events import Closed
from slipway.assets.sweeps.store import SweepStore
from slipway.operations import references
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import Trainings
from tests.assets.sweeps.simulation import budgeted, opened
from tests.resources.trainings.test_unreadable_store import started_training


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    return Tiers(durable=str(tmp_path), nvme="{node}")


def test_a_training_that_was_stopped_may_go_on_until_it_is_let_go(tmp_path, tiers):
    store = started_training(Trainings(tmp_path / "trainings"), "one")
    store.want("stop", "test", "")
    assert references.snapshots_in_use(tiers) == {"snapshot-one"}
    store.let_checkpoints_go("test", "not needed")
    assert references.snapshots_in_use(tiers) == set()


def test_a_sweep_uses_its_snapshot_before_its_first_trial_and_until_it_is_stopped_for_good(tmp_path, tiers):
    sweep = SweepStore(tmp_path / "sweeps" / "search-1")
    sweep.create({"snapshot": "snapshot-one"})
    assert references.snapshots_in_use(tiers) == {"snapshot-one"}, "it is not open yet"
    sweep.open(opened(), budgeted())
    assert references.snapshots_in_use(tiers) == {"snapshot-one"}
    sweep.append(Closed(outcome="complete", best_trial=None, best_value=None))
    assert references.snapshots_in_use(tiers) == {"snapshot-one"}, "a larger budget opens it again"


def test_a_sweep_that_was_stopped_for_good_uses_none(tmp_path, tiers):
    sweep = SweepStore(tmp_path / "sweeps" / "search-1")
    sweep.create({"snapshot": "snapshot-one"})
    sweep.open(opened(), budgeted())
    sweep.append(Closed(outcome="stopped", best_trial=None, best_value=None))
    assert references.snapshots_in_use(tiers) == set()

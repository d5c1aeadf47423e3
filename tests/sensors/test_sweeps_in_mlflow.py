"""Sweeps in MLflow: one run for each sweep with its trials under it, delivered once, whatever breaks in between."""

import shutil
import socket

import pytest

from slipway.assets.sweeps import tracked as owing
from slipway.assets.sweeps.events import Event
from slipway.assets.sweeps.store import SweepStore
from slipway.resources.mlflow.sweeps import NESTED, PARENT_TAG, SWEEP_TAG
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.trainings.store import WorkQueue, all_trials
from tests.assets.sweeps.simulation import budgeted, log_of, opened, power_law
from tests.sensors.platform import TINY, Platform

SWEEP = "curves-000000000000"


@pytest.fixture
def sweep(tracked: Platform) -> SweepStore:
    """A complete sweep, whose trial 0 has left a whole training."""
    store = SweepStore(tracked.tiers.durable_path / "sweeps" / SWEEP)
    store.create({"sweep": {"training": TINY}})
    log: list[Event] = log_of(opened(), budgeted(), power_law)
    store.append(*log)
    owing.owe(store)
    shutil.copytree(tracked.finished().folder, store.folder / "trials" / f"{SWEEP}.0")
    all_trials(tracked.tiers)[SWEEP].open(f"{SWEEP}.0", WorkQueue.TRACKING)
    return store


def runs(platform: Platform, tag: str):
    client = platform.tracking.client()
    where = [experiment.experiment_id for experiment in client.search_experiments()]
    return client.search_runs(where, f"tags.`{tag}` = '{SWEEP}'")


def test_a_sweep_is_a_run_with_its_trials_under_it_its_best_parameters_and_its_report(
    tracked: Platform, sweep: SweepStore
):
    tracked.apply("metrics_shipping")
    (parent,) = runs(tracked, PARENT_TAG)
    (trial,) = [run for run in runs(tracked, SWEEP_TAG) if run.info.run_id != parent.info.run_id]
    assert trial.data.tags[NESTED] == parent.info.run_id
    assert trial.info.run_name == f"{SWEEP}.0 as the recipe is written"
    state = sweep.state()
    assert state is not None and state.best is not None
    assert parent.data.tags["best.trial"] == str(state.best.number)
    assert {name for name in parent.data.tags if name.startswith("best.optimizer.")}
    assert parent.data.metrics["best_value"] == pytest.approx(state.best.value)
    assert parent.info.status == "FINISHED"
    client = tracked.tracking.client()
    assert [artifact.path for artifact in client.list_artifacts(parent.info.run_id)] == ["report.html"]
    assert owing.pending_work_below(sweep.folder.parent) == []


def test_delivering_it_again_makes_no_second_run(tracked: Platform, sweep: SweepStore):
    tracked.apply("metrics_shipping")
    (sweep.folder / "tracking.json").unlink()
    owing.owe(sweep)
    tracked.apply("metrics_shipping")
    assert len(runs(tracked, PARENT_TAG)) == 1


def test_while_mlflow_is_away_the_sweep_stays_owed(tracked: Platform, sweep: SweepStore):
    there = tracked.resources["tracking"]
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        tracked.resources["tracking"] = Tracking(uri=f"http://127.0.0.1:{nobody_listens.getsockname()[1]}")
        tracked.tick("metrics_shipping")
    assert len(owing.pending_work_below(sweep.folder.parent)) == 1
    tracked.resources["tracking"] = there
    tracked.apply("metrics_shipping")
    assert owing.pending_work_below(sweep.folder.parent) == []

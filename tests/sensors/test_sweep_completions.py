"""Sweep completions: the best parameters of a complete sweep are trained once; an unfinished sweep goes on."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.full_scale import led_to
from slipway.assets.sweeps.store import SweepStore, sweeps
from slipway.cli.main import main
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import lock
from tests.assets.sweeps.simulation import Curve, continued
from tests.sensors.platform import BY, SEARCH, TINY, Platform


def opened(platform: Platform) -> SweepStore:
    subject = current_subject(platform.recipes.sweeps[SEARCH], platform.recipe, platform.tiers, platform.tracking)
    return open_sweep(subject, platform.tiers)


def lowest(parameters: Mapping[str, Any], step: int) -> float:
    """The lowest learning rate is the best."""
    return math.log(parameters["optimizer.learning_rate"]) + 1 / step


def written(parameters: Mapping[str, Any], step: int) -> float:
    """The learning rate that the recipe has is the best."""
    return abs(math.log(parameters["optimizer.learning_rate"] / 0.01)) + 1 / step


def completed(platform: Platform, value: Curve = lowest) -> SweepStore:
    """A sweep whose trials have all ended, with these values."""
    store = opened(platform)
    state = store.state()
    assert state is not None
    store.append(*continued(state, value))
    return store


def best_training(platform: Platform) -> TrainingStore:
    [id] = platform.trainings.pending(WorkQueue.RUN)
    return platform.trainings.store(id)


def test_without_a_sweep_nothing_is_asked_for(platform: Platform):
    assert platform.apply("sweep_completions") == []


def test_a_sweep_that_the_command_starts_is_run_by_the_sensor(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SLIPWAY_HOME", str(platform.home.root))
    monkeypatch.setenv("SLIPWAY_RECIPES", str(platform.root / "recipes"))
    assert main(["sweeps", "start", "tiny-s"]) == 0
    [sweep] = [store.sweep for store in sweeps(platform.tiers.durable_path / "sweeps")]
    assert capsys.readouterr().out.startswith(f"{sweep} has begun")
    [request] = platform.apply("sweep_completions")
    assert request.tags[keys.SWEEP_TAG] == sweep
    assert main(["sweeps", "start", SEARCH, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"sweep": sweep, "state": "open", "trials": 0}


def test_a_sweep_is_not_started_without_a_snapshot(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SLIPWAY_HOME", str(platform.root / "other"))
    monkeypatch.setenv("SLIPWAY_RECIPES", str(platform.root / "recipes"))
    assert main(["sweeps", "start", SEARCH]) == 1
    assert "dataset texts has no snapshot yet; to make it: slipway data build texts" in capsys.readouterr().err


def test_a_complete_sweep_starts_the_training_of_its_best_parameters(platform: Platform):
    sweep = completed(platform).state()
    assert sweep is not None and sweep.best is not None
    assert platform.apply("sweep_completions") == []
    store = best_training(platform)
    rate = sweep.best.parameters["optimizer.learning_rate"]
    assert store.read().should_run and store.specification().identity_config["optimizer"]["learning_rate"] == rate
    assert store.specification().identity_config["run"]["steps"] == platform.recipe.run.steps
    assert store.run_policy().origin["trial"] == sweep.best.number
    assert store.id in platform.partitions(keys.training_partitions(TINY))


def test_where_no_trial_beats_the_recipe_as_it_is_written_that_is_trained(platform: Platform):
    """It has been trained already in this home, so that nothing more is wanted."""
    sweep = completed(platform, written).state()
    assert sweep is not None and sweep.best is not None and sweep.best.number == 0
    subject = current_subject(platform.recipes.sweeps[SEARCH], platform.recipe, platform.tiers, platform.tracking)
    led = led_to(subject, sweep)
    assert led is not None and led.recipe == platform.recipe
    assert platform.apply("sweep_completions") == [] and platform.trainings.pending(WorkQueue.RUN) == []


def test_the_second_tick_changes_nothing(platform: Platform):
    completed(platform)
    platform.apply("sweep_completions")
    store = best_training(platform)
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")}
    assert platform.apply("sweep_completions") == []
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")} == before


def test_the_job_watch_starts_the_training(platform: Platform):
    completed(platform)
    platform.apply("sweep_completions")
    store = best_training(platform)
    [request] = platform.apply("job_watch")
    assert request.tags[keys.TRAINING_TAG] == store.id
    assert store.read().submitted(1)
    platform.stopped(store)


def test_a_training_that_a_person_stopped_is_not_started_again(platform: Platform):
    completed(platform)
    platform.apply("sweep_completions")
    best_training(platform).want("stop", BY, "a test")
    assert platform.apply("sweep_completions") == []
    assert not best_training(platform).read().should_run


def test_a_sweep_without_a_run_is_given_one(platform: Platform):
    store = opened(platform)
    [request] = platform.apply("sweep_completions")
    assert request.asset_selection == [keys.key(SEARCH, "sweep")]
    assert request.tags[keys.SWEEP_TAG] == store.sweep
    platform.queue(request)
    assert platform.apply("sweep_completions") == []


def test_a_sweep_whose_run_was_cancelled_is_closed_and_its_trials_are_stopped_by_the_next_run(platform: Platform):
    store = opened(platform)
    [request] = platform.apply("sweep_completions")
    run = platform.queue(request)
    platform.end(run, DagsterRunStatus.CANCELED)
    [request] = platform.apply("sweep_completions")
    closed = store.closed()
    assert closed is not None and (closed.outcome, closed.reason) == ("stopped", f"run {run.run_id} was cancelled")
    platform.queue(request)
    assert platform.apply("sweep_completions") == []


def test_a_cancelled_sweep_whose_process_still_works_on_it_is_closed_at_once(platform: Platform):
    store = opened(platform)
    [request] = platform.apply("sweep_completions")
    run = platform.queue(request)
    platform.end(run, DagsterRunStatus.CANCELED)
    with lock.exclusive(store.folder):  # as its process does, which may hang
        assert len(platform.apply("sweep_completions")) == 1
        closed = store.closed()
    assert closed is not None and closed.reason == f"run {run.run_id} was cancelled"


def test_a_complete_sweep_whose_recipe_has_more_trials_now_goes_on(platform: Platform):
    store = completed(platform)
    assert platform.with_sweep(trials=6).apply("sweep_completions")[0].tags[keys.SWEEP_TAG] == store.sweep
    state = store.state()
    assert state is not None and state.closed is None and state.budget.trials == 6


@pytest.mark.parametrize("outcome", ["stopped", "failed"])
def test_a_sweep_that_was_not_completed_starts_no_training(platform: Platform, outcome: Any):
    store = opened(platform)
    state = store.state()
    assert state is not None
    store.append(closing(state, outcome, "a test"))
    assert platform.apply("sweep_completions") == []
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_a_sweep_that_was_stopped_fails_its_run_and_shows_its_report(platform: Platform):
    """The run finds the sweep stopped, with what its trials had reported by then."""
    store = opened(platform)
    state = store.state()
    assert state is not None
    store.append(*continued(state, lowest))
    begun = store.state()
    assert begun is not None
    store.ask("budget", BY, "one more", trials=begun.budget.trials + 1)
    store.cancel(BY, "enough")
    ended = platform.materialize([keys.key(SEARCH, "sweep")])
    [failed] = [event for event in ended.all_events if event.is_step_failure]
    failure = failed.step_failure_data.user_failure_data
    assert failure is not None and failure.description == f"sweep {store.sweep} stopped: enough"
    assert failure.metadata["trials"].value == len(begun.trials)
    assert {"report", "page", "curves"} <= failure.metadata.keys()

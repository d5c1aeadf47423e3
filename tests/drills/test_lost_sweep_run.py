"""The run that conducts a sweep is disposable too: the next one finds the trials where they are."""

import pytest

from slipway.assets import keys
from slipway.assets.sweeps import events
from slipway.assets.sweeps.store import SweepStore, sweeps
from slipway.assets.sweeps.trials import trial_id, trials_of
from slipway.resources.trainings.store import TrainingStore, all_trainings
from tests.drills import process_table, small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import Process, kill, stopped, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SWEEP_SECONDS = 420.0


@pytest.mark.nightly
def test_a_killed_sweep_run_is_replaced_and_no_trial_is_lost_or_started_twice(instance: Instance):
    first = instance.launch(keys.key(small_recipes.SWEEP, "sweep"))
    worker = instance.worker(first)
    (sweep,) = wait_until(lambda: sweeps(instance.home.durable / "sweeps"), "the sweep is opened")
    before = wait_until(lambda: _two_trainers(sweep), "two trials train")
    with stopped(before):
        kill([worker])
        tags = {keys.SWEEP_TAG: sweep.sweep}
        second = wait_until(lambda: instance.run_after(first, tags), "another run is asked for")
        wait_until(lambda: instance.worker(second), "it executes")
        assert set(before) <= set(_trainers(sweep))

    closed = wait_until(sweep.closed, "the sweep is complete", SWEEP_SECONDS)
    assert closed.outcome == "complete"
    started = [event.trial for event in sweep.read() if isinstance(event, events.Started)]
    assert sorted(started) == list(range(small_recipes.TRIALS))
    assert [len(instance.jobs(trial)) for trial in _trials(sweep)] == [1] * small_recipes.TRIALS
    wait_until(lambda: instance.succeeded(second), "the run succeeds")

    best = wait_until(lambda: _training_of(instance, sweep), "the training of the best parameters has started")
    assert best.run_policy().origin["trial"] in (0, closed.best_trial)
    instance.command("stop", best.id)
    _stays_stopped(instance, best)


def _stays_stopped(instance: Instance, training: TrainingStore) -> None:
    """Also when a run for it was waiting in the queue."""
    wait_until(lambda: training.id not in instance.open_trainings(), "its duty is closed")
    ended = training.exit()
    assert ended is not None and ended.outcome == "stopped"
    assert not training.read().should_run


def _trials(sweep: SweepStore) -> list[TrainingStore]:
    return [trials_of(sweep).store(trial_id(sweep, number)) for number in range(small_recipes.TRIALS)]


def _trainers(sweep: SweepStore) -> list[Process]:
    return [process for trial in _trials(sweep) for process in process_table.ranks(trial.id)]


def _two_trainers(sweep: SweepStore) -> list[Process]:
    """The trainers of the first two trials, as soon as both are there."""
    trainers = _trainers(sweep)
    return trainers if len(trainers) == 2 else []


def _training_of(instance: Instance, sweep: SweepStore) -> TrainingStore | None:
    """The training that the sweep led to, once it has an incarnation."""
    known = all_trainings(instance.tiers)
    stores = list(known.stores())
    led_to = [store for store in stores if store.run_policy().origin.get("sweep") == sweep.sweep]
    return led_to[0] if led_to and led_to[0].newest_claim() else None

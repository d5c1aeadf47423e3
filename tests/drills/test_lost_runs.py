"""A training's run is disposable: whatever becomes of it, the training goes on, once. A person's word is heeded."""

import functools

import pytest
from dagster import DagsterRunStatus

from tests.conftest import is_asked_to_end
from tests.drills import process_table, small_recipes
from tests.drills.facts import restored_from, steps, steps_of
from tests.drills.instance import Instance, tags_of, training_key
from tests.drills.process_table import Watch, kill, stopped, wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

STEPS = 150


def test_a_killed_run_leaves_the_training_alone_and_the_next_run_adopts_it(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "killed run", steps=STEPS)
    with Watch(training.id) as watch:
        first = instance.materialize(training)
        wait_until(training.commits, "a checkpoint is committed")
        (trainer,) = process_table.ranks(training.id)
        with stopped([trainer]):
            kill([instance.worker(first)])
            next_run = wait_until(lambda: instance.run_after(first, tags_of(training)), "another run is asked for")
            assert instance.worker(next_run)
            assert process_table.ranks(training.id) == [trainer]
        wait_until(lambda: instance.succeeded(next_run), "the next run succeeds")
    assert instance.run(first).status is DagsterRunStatus.FAILURE
    assert watch.trainers == {trainer}
    assert instance.jobs(training) == [f"{training.id}-i1"]
    assert steps(training) == list(range(1, STEPS + 1))
    assert len(instance.materializations(training_key(training), training.id)) == 1
    assert wait_until(lambda: instance.times_shown(training), "all checkpoints are shown") == {1}


def test_two_runs_launched_at_once_share_one_job(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "launched twice", steps=50)
    with Watch(training.id) as watch:
        both = [instance.materialize(training), instance.materialize(training)]
        for run in both:
            wait_until(functools.partial(instance.succeeded, run), "both runs succeed")
    assert len(watch.trainers) == 1
    assert instance.jobs(training) == [f"{training.id}-i1"]
    assert steps(training) == list(range(1, 51))


def test_a_cancelled_run_stops_its_training_until_it_is_materialised_again(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "cancelled run", steps=150)
    cancelled = instance.materialize(training)
    wait_until(training.commits, "a checkpoint is committed")
    (trainer,) = process_table.ranks(training.id)
    with stopped([trainer]):
        instance.cancel(cancelled)
        wait_until(lambda: is_asked_to_end(trainer.pid), "it is asked to end")
    ended = wait_until(training.exit, "the training has stopped")
    assert instance.run(cancelled).status is DagsterRunStatus.CANCELED
    desired = training.desired()
    assert desired is not None
    assert (desired.want, desired.why) == ("stop", f"run {cancelled} was cancelled")
    reached = steps(training)[-1]
    assert (ended.outcome, ended.step) == ("stopped", reached)
    assert training.commits()[-1].step == reached

    wait_until(lambda: training.id not in instance.open_trainings(), "its duty is closed")
    assert [run.run_id for run in instance.runs(tags_of(training))] == [cancelled]
    assert instance.jobs(training) == [f"{training.id}-i1"]

    again = instance.materialize(training)
    wait_until(lambda: restored_from(training, 2), "it goes on")
    assert restored_from(training, 2) == reached
    wait_until(lambda: instance.succeeded(again), "the second run succeeds")
    assert steps_of(training, 2) == list(range(reached + 1, 151))


def test_executing_a_run_of_the_job_watch_again_wants_its_training(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "executed again", steps=300)
    shown_by = instance.start_as_a_sensor_does(training)
    instance.worker(shown_by)
    instance.cancel(shown_by)
    wait_until(lambda: training.id not in instance.open_trainings(), "the training is stopped")
    assert not training.read().should_run

    again = instance.materialize_again(shown_by)
    wait_until(lambda: instance.succeeded(again), "it is brought to its end")

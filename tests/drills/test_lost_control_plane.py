"""All of the control plane may die at once: what trains goes on, and is shown when there is a control plane again."""

import pytest
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.trainings.store import WorkQueue, all_trainings
from slipway.trainer.record import incidents
from slipway.trainer.record.causes import KILLED
from tests.drills import process_table, small_recipes
from tests.drills.facts import steps
from tests.drills.instance import Instance, tags_of, training_key
from tests.drills.process_table import Watch, stopped, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 150


def test_a_training_under_way_is_found_finished_and_shown(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "lost control plane", steps=STEPS)
    with Watch(training.id) as watch:
        lost = instance.materialize(training)
        wait_until(training.commits, "a checkpoint is committed")
        (trainer,) = process_table.ranks(training.id)
        with stopped([trainer]):
            instance.crash()
            assert instance.run(lost).status is DagsterRunStatus.STARTED

            instance.start()
            assert instance.run(lost).status is DagsterRunStatus.FAILURE
            assert process_table.ranks(training.id) == [trainer]
        wait_until(lambda: training.id not in instance.open_trainings(), "it has come to its end", 240)
    (materialization,) = instance.materializations(training_key(training), training.id)
    assert materialization.metadata["steps"].value == STEPS
    assert watch.trainers == {trainer}
    assert instance.jobs(training) == [f"{training.id}-i1"]
    assert steps(training) == list(range(1, STEPS + 1))


@pytest.mark.nightly
def test_a_training_that_ended_meanwhile_is_shown_by_the_job_watch(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "ended meanwhile", steps=STEPS)
    lost = instance.materialize(training)
    wait_until(training.commits, "a checkpoint is committed")
    with stopped(process_table.ranks(training.id)):
        instance.crash()
    ended = wait_until(training.exit, "the training has ended")
    assert ended.outcome == "succeeded"
    assert not instance.materializations(training_key(training), training.id)

    instance.start()
    wait_until(lambda: instance.materializations(training_key(training), training.id), "the result is shown")
    wait_until(lambda: training.id not in instance.open_trainings(), "its duty is closed")
    (materialization,) = instance.materializations(training_key(training), training.id)
    assert materialization.metadata["steps"].value == STEPS
    assert [run.run_id for run in instance.runs(tags_of(training))] == [lost]
    assert wait_until(lambda: instance.times_shown(training), "all checkpoints are shown") == {1}


@pytest.mark.nightly
def test_closing_the_instance_leaves_a_training_alone_and_names_the_command_that_stops_it(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "closed instance", steps=STEPS)
    instance.materialize(training)
    wait_until(training.commits, "a checkpoint is committed")
    (trainer,) = process_table.ranks(training.id)
    with stopped([trainer]):
        output = instance.close()
        assert f"{training.id} goes on; to stop it: slipway stop {training.id}" in output
        assert not instance.control_plane()
        assert process_table.ranks(training.id) == [trainer]

    assert f"{training.id} is stopped at step" in instance.command("stop", training.id)
    assert not process_table.of_training(training.id)
    ended = training.exit()
    assert ended is not None and ended.outcome == "stopped"
    assert training.commits()[-1].step == steps(training)[-1]


@pytest.mark.nightly
def test_a_training_without_dagster_from_its_first_step_to_its_last_heals_itself_and_all_of_it_is_shown_afterwards(
    instance: Instance,
):
    training = instance.propose(small_recipes.PAIR, "without Dagster", steps=STEPS)
    instance.materialize(training)
    begun = wait_until(lambda: process_table.of_training(training.id), "its job has begun")
    with stopped(begun):
        instance.crash()
        assert not steps(training)
    wait_until(training.commits, "a checkpoint is committed")
    process_table.kill([process_table.ranks(training.id)[-1].pid])
    ended = wait_until(training.exit, "the training has ended", 240)
    assert (ended.outcome, instance.control_plane()) == ("succeeded", [])

    instance.start()
    wait_until(lambda: training.id not in instance.open_trainings(), "its duty is closed", 240)
    (materialization,) = instance.materializations(training_key(training), training.id)
    assert materialization.metadata["steps"].value == STEPS
    assert wait_until(lambda: instance.times_shown(training), "all checkpoints are shown") == {1}
    (incident,) = incidents.names(training.folder)
    partition = f"{training.id}.{incident}"
    key = keys.key(small_recipes.PAIR, "incident")
    materialized = wait_until(lambda: instance.materializations(key, partition), "its incident is shown")[0]
    assert materialized.metadata["kind"].value == KILLED
    tracking, due = Tracking(uri=instance.home.tracking_uri), all_trainings(instance.tiers)
    wait_until(lambda: training.id not in due.pending(WorkQueue.TRACKING), "MLflow has its metrics", 240)
    losses = tracking.client().get_metric_history(tracking.run_of(training), "loss")
    assert {metric.step for metric in losses} == set(range(1, STEPS + 1))

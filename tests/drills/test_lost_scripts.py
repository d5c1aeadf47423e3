"""A script of one's own on the platform: its node is lost, and it recovers and is shown as our trainings are."""

import json

import pytest

from slipway.assets import keys
from slipway.resources.fleet import embedded
from slipway.resources.launchers.environment import JOB_VARIABLE
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore, all_trainings
from slipway.trainer.base import processes
from tests.drills import small_recipes
from tests.drills.facts import causes, restored_from, steps, steps_of
from tests.drills.instance import Instance, training_key
from tests.drills.process_table import kill, wait_until

pytestmark = pytest.mark.slow

FINISH_SECONDS = 240.0


@pytest.mark.nightly
def test_the_example_recovers_from_a_lost_node_and_a_killed_process(instance: Instance):
    recipe = instance.recipes.scripts[small_recipes.SCRIPT]
    training = instance.propose_recipe(recipe, "lost node")
    (instance.home.root.parent / "code" / "bigram.py").write_text("raise SystemExit('edited meanwhile')\n")
    instance.materialize(training)
    _loses_its_node(instance, training)
    _loses_its_process(training)
    wait_until(lambda: training.id not in instance.open_trainings(), "the script is at its end", FINISH_SECONDS)
    _went_on_from_its_checkpoints(training, recipe.parameters["steps"])
    _is_shown(instance, training)
    _is_logged(instance, training)


def _loses_its_node(instance: Instance, training: TrainingStore) -> None:
    wait_until(training.commits, "a checkpoint is committed")
    assert embedded.kill(instance.home.nodes, "node-0")


def _loses_its_process(training: TrainingStore) -> None:
    """The second incarnation's, which restores before it does anything else."""
    wait_until(lambda: restored_from(training, 2), "the second incarnation goes on")
    job = {JOB_VARIABLE: job_name(training.id, 2)}
    ranks = [pid for pid in processes.carrying(job) if not processes.children(pid)]
    kill(ranks)


def _went_on_from_its_checkpoints(training: TrainingStore, total: int) -> None:
    ended = training.exit()
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", total)
    first, lost, killed = causes(training)
    assert first == "first start" and "node-0" in lost and "node-1 ended with exit code 137" in killed
    for incarnation in (2, 3):
        before = [commit.step for commit in training.commits() if commit.token.incarnation < incarnation]
        assert restored_from(training, incarnation) == before[-1]
        assert steps_of(training, incarnation)[:1] in ([], [before[-1] + 1])
    assert set(steps(training)) == set(range(1, total + 1))


def _is_shown(instance: Instance, training: TrainingStore) -> None:
    (result,) = instance.materializations(training_key(training), training.id)
    assert result.metadata["incarnations"].value == 3
    wait_until(lambda: instance.times_shown(training) == {1}, "its checkpoints are shown")
    last = training.commits()[-1]
    partition = keys.checkpoint_partition(training.id, last.step)
    (materialization,) = instance.materializations(keys.key(small_recipes.SCRIPT, "checkpoint"), partition)
    assert materialization.metadata["validation_loss"].value == last.metrics["validation_loss"]
    progress = json.loads((instance.home.durable / last.folder / "progress.json").read_bytes())
    assert progress["lineage"]["snapshot"] == training.specification().snapshot
    assert progress["config"]["script"] == training.specification().script


def _is_logged(instance: Instance, training: TrainingStore) -> None:
    """Everything owed is done, evaluation and promotion need nothing, and MLflow has the curves and the parameters."""
    wait_until(lambda: not all_trainings(instance.tiers).has_pending_work(training.id), "nothing is owed any more")
    tracking = Tracking(uri=instance.home.tracking_uri)
    client, run = tracking.client(), tracking.run_of(training)
    logged = {metric.step for metric in client.get_metric_history(run, "loss")}
    assert logged == set(steps(training))
    validated = {metric.step for metric in client.get_metric_history(run, "validation_loss")}
    assert validated == {commit.step for commit in training.commits()}
    assert client.get_run(run).data.params["parameters.checkpoint_every"] == "100"

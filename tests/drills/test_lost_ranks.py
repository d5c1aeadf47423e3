"""Ranks, nodes and jobs die or hang: the training goes on from the newest checkpoint, and says why.

A rank that dies, and a node without which the job can go on, lead to a new generation in the same job; all else to a
new incarnation.
"""

import shutil
from signal import SIGSTOP

import pytest

from slipway.resources.fleet import embedded
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import incidents
from slipway.trainer.record.causes import DISRUPTED, KILLED
from slipway.trainer.record.fence import Token
from tests.drills import process_table, small_recipes
from tests.drills.facts import causes, restored_from, steps, steps_of
from tests.drills.instance import Instance, training_key
from tests.drills.process_table import Process, Watch, kill, send, wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

STEPS = 150
FINISH_SECONDS = 240.0


def test_a_killed_rank_costs_no_more_than_the_steps_since_the_last_checkpoint(instance: Instance):
    training, ranks = _under_way(instance, small_recipes.PAIR, "killed rank")
    assert [rank.node for rank in ranks] == ["node-0", "node-1"]
    kill([ranks[1].pid])
    _finishes(instance, training)
    _goes_on_in_the_same_job(training)
    incident = incidents.read(training.folder, str(Token(1)))
    assert (incident.kind, incident.nodes) == (KILLED, ("node-1",))


def test_a_killed_node_leaves_the_training_to_the_other_one(instance: Instance):
    training, _ = _under_way(instance, small_recipes.PAIR, "killed node")
    assert embedded.kill(instance.home.nodes, "node-1")
    _finishes(instance, training)
    _goes_on_in_the_same_job(training)
    incident = incidents.read(training.folder, str(Token(1)))
    assert (incident.kind, incident.reason) == (DISRUPTED, "node node-1 is lost")
    assert [event["world"] for event in training.events() if event["event"] == "started"] == [2, 1]


def test_a_rank_that_hangs_is_replaced_after_the_deadline(instance: Instance):
    with_deadline = instance.propose(small_recipes.ALONE, "hanging rank", no_progress_seconds=30, steps=STEPS)
    with Watch(with_deadline.id) as watch:
        training, (rank,) = _started(instance, with_deadline)
        send(SIGSTOP, [rank.pid])
        _finishes(instance, training)
    assert "no progress for" in causes(training)[1]
    assert watch.most_at_once == 1
    assert rank not in process_table.ranks(training.id)
    _goes_on_from_the_newest_checkpoint(training)
    _is_in_the_event_log(instance, training, "no progress for")


def test_a_job_deleted_by_hand_is_started_again_and_the_event_log_has_the_reason(instance: Instance):
    training, ranks = _under_way(instance, small_recipes.ALONE, "deleted job")
    shutil.rmtree(instance.job_folder(training, 1))
    wait_until(lambda: not set(ranks) & set(process_table.ranks(training.id)), "the job's processes are gone")
    _finishes(instance, training)
    assert "the job object was deleted by hand; it is started again" in causes(training)[1]
    _goes_on_from_the_newest_checkpoint(training)
    _is_in_the_event_log(instance, training, "deleted by hand")


def _under_way(instance: Instance, recipe: str, cause: str) -> tuple[TrainingStore, list[Process]]:
    """A training with a checkpoint, and its ranks."""
    return _started(instance, instance.propose(recipe, cause, steps=STEPS))


def _started(instance: Instance, training: TrainingStore) -> tuple[TrainingStore, list[Process]]:
    instance.materialize(training)
    wait_until(training.commits, "a checkpoint is committed")
    return training, process_table.ranks(training.id)


def _finishes(instance: Instance, training: TrainingStore) -> None:
    """The training comes to a good end, and its result is shown once."""
    wait_until(lambda: training.id not in instance.open_trainings(), "the training is at its end", FINISH_SECONDS)
    ended = training.exit()
    assert ended is not None and ended.outcome == "succeeded"
    assert len(instance.materializations(training_key(training), training.id)) == 1


def _goes_on_in_the_same_job(training: TrainingStore) -> None:
    """The second generation goes on from the newest checkpoint of the first, and there is no second incarnation."""
    assert causes(training) == ["first start"]
    claim = training.newest_claim()
    assert claim is not None and claim.token == Token(1, 1)
    committed_steps = [commit.step for commit in training.commits() if commit.token == Token(1)]
    assert restored_from(training, 1) == committed_steps[-1] > 0
    assert set(steps(training)) == set(range(1, STEPS + 1))
    assert steps(training)[-(STEPS - committed_steps[-1]) :] == list(range(committed_steps[-1] + 1, STEPS + 1))


def _goes_on_from_the_newest_checkpoint(training: TrainingStore) -> None:
    """The second incarnation is the last one; nothing before its checkpoint was done again, nothing was left out."""
    assert len(causes(training)) == 2
    committed_steps = [commit.step for commit in training.commits() if commit.token.incarnation == 1]
    assert restored_from(training, 2) == committed_steps[-1] > 0
    assert steps_of(training, 2) == list(range(committed_steps[-1] + 1, STEPS + 1))
    assert set(steps(training)) == set(range(1, STEPS + 1))


def _is_in_the_event_log(instance: Instance, training: TrainingStore, text: str) -> None:
    observations = instance.observations(training_key(training), training.id)
    (incident,) = [
        observation for observation in observations if "cause" in observation.metadata
    ]  # the others say where it stands
    assert text in str(incident.metadata["cause"].value)

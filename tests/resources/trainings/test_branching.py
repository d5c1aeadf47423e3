"""Branching: the specification of a training that continues a checkpoint of another one, and what keeps that."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.trainings import branching
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.checkpoint.retention import holds
from slipway.trainer.elastic import skipped_batches
from slipway.trainer.elastic.skipped_batches import SkippedBatch
from slipway.trainer.record import changes, fence
from slipway.trainer.record.changes import AppliedChange
from slipway.trainer.record.fence import Commit, Token
from tests.resources.trainings.lab import numbers

RUN_POLICY = RunPolicy(1, 1, 1, 60.0, 3)


@pytest.fixture
def root(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path / "trainings")


@pytest.fixture
def parent(root: Trainings) -> TrainingStore:
    """A training with checkpoints at steps 10 and 20."""
    store = root.propose(Specification("tiny", numbers(100), "0" * 64, "1" * 64), RUN_POLICY)
    fence.claim(store.folder, Token(1), nodes=("node-0",), cause="a test", by="test")
    for step in (10, 20):
        fence.commit(store.folder, Commit(step, Token(1), f"checkpoints/{store.id}/{step}", f"{step:064d}"))
    return store


def branch(
    root: Trainings, parent: TrainingStore, step: int = 10, name: str = "", **changed_fields: Any
) -> TrainingStore:
    fields = {field.replace("__", "."): value for field, value in changed_fields.items()}
    return branching.branch(root, parent, branching.commit_at(parent, step), fields, RUN_POLICY, "ada", name, "abc")


def test_a_branch_is_a_training_of_its_own_that_names_the_parents_commit_by_its_digest(
    root: Trainings, parent: TrainingStore
):
    child = branch(root, parent, optimizer__learning_rate=0.5)
    specification = child.specification()
    assert specification.branch is not None and child.id != parent.id
    assert (specification.branch.training, specification.branch.step) == (parent.id, 10)
    assert specification.branch.manifest == f"{10:064d}" and specification.branch.revision == "abc"
    assert specification.identity_config["optimizer"]["learning_rate"] == 0.5
    assert child.run_policy().origin["changed"] == {"optimizer.learning_rate": [0.01, 0.5]}


def test_the_same_branch_is_the_same_training_and_another_commit_change_or_name_is_another(
    root: Trainings, parent: TrainingStore
):
    same = {branch(root, parent).id for _ in range(2)}
    others = [branch(root, parent, 20), branch(root, parent, run__steps=200), branch(root, parent, name="again")]
    assert len(same) == 1 and len(same | {other.id for other in others}) == 4


def test_a_training_that_is_no_branch_has_the_id_that_it_always_had():
    plain = Specification("tiny", {"run": {"steps": 1}}, "0" * 64, "1" * 64)
    assert plain.id == "tiny-0aa146f275dc"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "run.seed",
            5,
            "run.seed: found 5, expected 0, as it was: the place in the order of the samples depends on it",
        ),
        (
            "model.layers",
            4,
            "model.layers: found 4, expected 2, as it was: the checkpoint has the tensors of the former",
        ),
        ("batch.sequences", 8, "batch.sequences: found 8, expected 4, as it was"),
        ("dataset", "other", "dataset: found 'other', expected no change"),
        ("optimizer.rate", 1, "optimizer.rate: unknown; expected one of "),
        ("run.steps", 10, "run.steps: found 10, expected more than 10, the step of the checkpoint"),
        ("optimizer.learning_rate", -1, "optimizer.learning_rate: found -1, expected a number above 0"),
    ],
)
def test_what_no_continuation_can_change_is_refused_with_the_field_before_anything_is_written(
    root: Trainings, parent: TrainingStore, field: str, value: object, message: str
):
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        branch(root, parent, 10, "", **{field.replace(".", "__"): value})
    assert root.ids() == [parent.id] and not (parent.folder / "holds").exists()


def test_the_remedy_is_named(root: Trainings, parent: TrainingStore):
    with pytest.raises(ValueError, match=r"to start from its weights alone, use `init` in a recipe$"):
        branch(root, parent, model__layers=4)


def test_a_checkpoint_that_is_not_there_is_refused_with_the_nearest_ones(parent: TrainingStore):
    with pytest.raises(ValueError, match=f"{parent.id}@12: found no checkpoint of this step, expected .*: 10, 20"):
        branching.commit_at(parent, 12)
    assert branching.commit_at(parent, None).step == 20
    fence.prune(parent.folder, branching.commit_at(parent, 10), "a test")
    with pytest.raises(ValueError, match=f"{parent.id}@10: found a checkpoint that the retention removed"):
        branching.commit_at(parent, 10)
    fence.set_aside(parent.folder, branching.commit_at(parent, 20), "a bit flipped")
    with pytest.raises(ValueError, match="found no checkpoint, expected one to start from"):
        branching.commit_at(parent, 20)
    assert branching.nearest(range(0, 100, 10), 42) == [30, 40, 50, 60]


def test_a_branch_has_what_its_parent_had_changed_by_that_step_and_not_what_came_later(
    root: Trainings, parent: TrainingStore
):
    for number, step, rate in ((1, 15, 0.5), (2, 30, 0.25)):
        pairs = {"optimizer.learning_rate": (0.01, rate)}
        changes.record(parent.folder, AppliedChange(number, step, Token(1), pairs))
    rates = [
        branch(root, parent, step).specification().identity_config["optimizer"]["learning_rate"] for step in (10, 20)
    ]
    assert rates == [0.01, 0.5]


def test_a_branch_leaves_out_the_batches_that_its_parent_left_out_later(root: Trainings, parent: TrainingStore):
    for step in (7, 13):
        assert skipped_batches.note(parent.folder, SkippedBatch(step, step, "diverged", "a test", "000001.0000", 1.0))
    assert skipped_batches.read(branch(root, parent).folder) == {13: 13}


def test_the_parents_checkpoint_is_held_until_the_branch_has_one_that_lasts(root: Trainings, parent: TrainingStore):
    child, far = branch(root, parent), time.time() + 1e9
    name = branching.commit_at(parent, 10).name
    assert holds.reasons(parent.folder, name, far) == [
        f"training {child.id} holds it: it continues it, and has no checkpoint of its own"
    ]
    fence.claim(child.folder, Token(1), nodes=("node-0",), cause="a test", by="test")
    commit = Commit(15, Token(1), f"checkpoints/{child.id}/15", "0" * 64, tier="nvme")
    fence.commit(child.folder, commit)
    assert holds.reasons(parent.folder, name, far)
    fence.commit(child.folder, dataclasses.replace(commit, step=20, tier="durable"))
    assert holds.reasons(parent.folder, name, far) == []


def test_a_trial_that_continues_another_one_has_the_id_that_its_sweep_gives_it(root: Trainings, parent: TrainingStore):
    commit = branching.commit_at(parent, 10)
    run_policy = dataclasses.replace(RUN_POLICY, origin={"sweep": "search-1", "trial": 4})
    child = branching.branch(root, parent, commit, {}, run_policy, "sweep", id="search-1.4")
    assert child.id == "search-1.4" and child.specification().branch is not None
    assert {**run_policy.origin, "branch": f"{parent.id}@10"}.items() <= dict(child.run_policy().origin).items()
    assert holds.reasons(parent.folder, commit.name, time.time())


def test_a_branch_that_never_saved_lets_go_of_its_parents_checkpoint_a_week_after_it_was_stopped(
    root: Trainings, parent: TrainingStore
):
    child, now = branch(root, parent), time.time()
    name = branching.commit_at(parent, 10).name
    root.start(child, "ada", "a test")
    assert not branching.let_go_if_abandoned(root, child.read(), now + 30 * 86_400), "somebody wants it"
    child.want("stop", "ada", "a mistake")
    assert not branching.let_go_if_abandoned(root, child.read(), now + 86_400), "it may be a pause"
    assert branching.let_go_if_abandoned(root, child.read(), now + 8 * 86_400)
    assert holds.reasons(parent.folder, name, now) == []
    assert not branching.let_go_if_abandoned(root, child.read(), now + 8 * 86_400)


def test_a_branch_that_is_wanted_again_holds_it_again_or_says_that_it_is_gone(root: Trainings, parent: TrainingStore):
    child = branch(root, parent)
    name = branching.commit_at(parent, 10).name
    holds.let_go(parent.folder, name, child.id)
    branching.hold_again(root, child)
    assert holds.reasons(parent.folder, name, time.time() + 1e9)
    holds.let_go(parent.folder, name, child.id)
    fence.prune(parent.folder, branching.commit_at(parent, 10), "a test")
    with pytest.raises(ValueError, match=f"{parent.id}@10 from which it starts was removed"):
        branching.hold_again(root, child)

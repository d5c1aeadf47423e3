"""Branching: a training continues another one's checkpoint with its full state, as if it was that training."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import atomic
from slipway.trainer.record import causes, fence, rank_exit
from tests.trainer.conftest import Training, read_json


def branched(parent: Training, folder: Path, mark: str, step: int = 10, **changed: dict[str, Any]) -> Training:
    """A training that continues the parent's checkpoint of `step`, with what is given changed in each section.

    It has the parent's durable tier as it was then, so that what is written there disturbs no other test.
    """
    child = Training(folder, mark)
    child.configure(**changed)
    shutil.copytree(parent.durable, child.durable, dirs_exist_ok=True)
    commit = next(commit for commit in parent.commits() if commit.step == step)
    document = read_json(child.config)
    placement = {**document["placement"], "parent": str(parent.store)}
    branch = {"training": "tiny", "commit": commit.name, "step": commit.step, "manifest": commit.manifest}
    child.config.write_bytes(
        atomic.readable_json({**document, "training": "child", "placement": placement, "branch": branch})
    )
    return child


def after(losses: list[tuple[int, float]], step: int) -> list[tuple[int, float]]:
    return [(number, loss) for number, loss in losses if number > step]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_branch_at_the_same_configuration_repeats_its_parent_bit_for_bit(
    ranks: int, request: pytest.FixtureRequest, tmp_path: Path, mark: str
):
    parent = request.getfixturevalue("finished" if ranks == 1 else "finished_by_two")
    before = [commit.name for commit in parent.commits()]
    child = branched(parent, tmp_path, mark).completed(ranks)
    assert child.losses() == after(parent.losses(), 10)
    assert child.tensors() == parent.tensors()
    assert [commit.step for commit in child.commits()] == [15, 20]
    assert [commit.name for commit in parent.commits()] == before
    [restored] = child.events("restored")
    assert (restored["step"], restored["parent"]) == (10, "tiny")
    # A spike is one among the training's own losses: a branch may have other data.
    progress = read_json(child.checkpoint_file("progress.json", 15))
    assert progress["losses"] == [loss for step, loss in child.losses() if step <= 15]


@pytest.mark.nightly
def test_a_branch_with_another_rate_begins_with_its_parents_weights_and_goes_another_way(
    finished: Training, tmp_path: Path, mark: str
):
    child = branched(finished, tmp_path, mark, optimizer={"learning_rate": 0.001}).completed()
    [first, second, *_] = child.losses()
    assert first == after(finished.losses(), 10)[0]  # the loss is of the weights before the update
    assert second != after(finished.losses(), 11)[0]


@pytest.mark.nightly
def test_a_branch_that_is_killed_begins_again_from_its_parent_and_later_from_its_own(
    finished: Training, tmp_path: Path, mark: str
):
    child = branched(finished, tmp_path, mark)
    child.interrupted(13, saved=0).interrupted(17, saved=15).completed()
    assert [event["step"] for event in child.events("restored")] == [10, 10, 15]
    assert child.losses() == after(finished.losses(), 10)


@pytest.mark.nightly
def test_a_parents_checkpoint_that_is_damaged_is_no_fault_of_the_configuration_and_stays_as_it_is(
    copy_of_finished: Training, tmp_path_factory: pytest.TempPathFactory, mark: str
):
    weights = copy_of_finished.checkpoint_file("model-00000.safetensors", 10)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    child = branched(copy_of_finished, tmp_path_factory.mktemp("child"), mark)
    ended = child.run()
    end = rank_exit.decisive(child.store, 1)
    assert ended.code == 1 and end is not None and end.kind == causes.STORAGE
    assert "branch: tiny: checkpoint 000000010.000001.0000 cannot be loaded: durable: " in ended.err
    assert not fence.set_aside_reasons(copy_of_finished.store)


@pytest.mark.nightly
def test_a_checkpoint_of_another_manifest_is_refused(finished: Training, tmp_path: Path, mark: str):
    child = branched(finished, tmp_path, mark)
    document = read_json(child.config)
    document["branch"]["manifest"] = "0" * 64
    child.config.write_bytes(atomic.readable_json(document))
    ended = child.run()
    assert ended.code == 2 and "expected 0000000000000000" in ended.err

"""Granted steps: a training that is given its steps a part at a time is the one that was given all at once."""

from pathlib import Path

import pytest

from slipway.trainer.record import causes, fence, grants
from tests.conftest import until
from tests.trainer.conftest import Training, wait
from tests.trainer.test_branching import branched


def paused_at(training: Training, step: int) -> None:
    """Its newest incarnation has ended by itself after this step, with a checkpoint of it."""
    claim = fence.newest_claim(training.store)
    assert claim is not None
    ended = fence.read_exit(training.store, claim.token.incarnation)
    assert ended is not None
    assert (ended.outcome, ended.kind, ended.step) == ("stopped", causes.PAUSED, step)
    assert training.commits()[-1].step == training.losses()[-1][0] == step


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_training_that_pauses_at_steps_of_its_grants_repeats_the_undisturbed_one_bit_for_bit(
    ranks: int, training: Training, request: pytest.FixtureRequest
):
    undisturbed = request.getfixturevalue("finished" if ranks == 1 else "finished_by_two")
    for step in (4, 12):
        grants.grant(training.store, step, "a test")
        ended = wait(training.start(ranks))
        assert ended.code == 0, ended.err
        paused_at(training, step)
    grants.grant(training.store, 20, "a test")
    training.completed(ranks)
    assert training.losses() == undisturbed.losses()
    assert training.tensors() == undisturbed.tensors()


@pytest.mark.slow
def test_a_training_that_is_granted_more_while_it_waits_goes_on_in_the_same_process(
    training: Training, finished: Training
):
    grants.grant(training.store, 6, "a test", wait_seconds=120)
    process = training.start()
    until(lambda: [commit.step for commit in training.commits()] == [5, 6], "the checkpoint of the last granted step")
    grants.grant(training.store, 20, "a test")
    ended = wait(process)
    assert ended.code == 0, ended.err
    assert [event["incarnation"] for event in training.events("started")] == [1]
    assert training.tensors() == finished.tensors()


@pytest.mark.slow
def test_a_training_that_was_granted_nothing_more_ends_again_at_once_and_keeps_its_checkpoint(training: Training):
    grants.grant(training.store, 5, "a test")
    for _ in range(2):
        assert wait(training.start()).code == 0
        paused_at(training, 5)
    assert [commit.step for commit in training.commits()] == [5]


@pytest.mark.slow
def test_a_child_with_other_parameters_has_its_parents_very_weights_at_its_first_step(
    finished: Training, tmp_path: Path, mark: str
):
    """As a child in population-based training: granted no step of its own, it saves what it begins with."""
    child = branched(finished, tmp_path, mark, optimizer={"learning_rate": 0.001})
    grants.grant(child.store, 10, "a test")
    ended = wait(child.start())
    assert ended.code == 0, ended.err
    assert [commit.step for commit in child.commits()] == [10]
    assert child.tensors(10) == finished.tensors(10)

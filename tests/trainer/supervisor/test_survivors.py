"""Survivors: ranks that are well stay in their processes when another one is lost, and no step is lost with it."""

import os
import signal

import pytest

from tests.trainer.conftest import STEPS, Training
from tests.trainer.supervisor.nodes import SupervisedNodes
from trainer.record import fence
from trainer.record.fence import Token

STAY = {"recovery": {"survivors": "stay"}}


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_replicas_stay_and_give_their_state_to_the_rank_that_takes_the_place_of_a_killed_one(
    training: Training, finished_by_two: Training, lost: int
) -> None:
    training.configure(**STAY)
    nodes = SupervisedNodes(training, ("a", "b"))
    nodes.until_generation(0)
    before = {name: nodes.ranks(name) for name in ("a", "b")}
    os.kill(before["ab"[lost]][0], signal.SIGKILL)
    nodes.until_generation(1)
    assert nodes.ranks("ba"[lost]) == before["ba"[lost]]
    ended = nodes.ended()
    assert [each.code for each in ended.values()] == [0, 0], ended
    held = fence.newest_claim(training.store)
    assert held is not None and held.token == Token(1, 1)
    [handed] = training.events("handed_over")
    assert handed["givers"] == {str(lost): 1 - lost}
    assert training.events("restored") == []
    assert training.losses() == finished_by_two.losses()
    assert len(training.losses()) == STEPS
    assert training.tensors() == finished_by_two.tensors()

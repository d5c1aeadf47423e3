"""Killed ranks: the job goes on in the same incarnation, as a new generation, with the same numbers."""

import os
import signal

import pytest

from tests.trainer.conftest import Training
from tests.trainer.supervisor.nodes import SupervisedNodes
from trainer.record import causes, fence, incidents
from trainer.record.fence import Token


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_rank_is_answered_inside_the_incarnation_bit_for_bit(
    training: Training, finished_by_two: Training, number: signal.Signals
) -> None:
    training.configure()
    nodes = SupervisedNodes(training, ("a", "b"))
    nodes.until_generation(0)
    [rank] = nodes.ranks("b")
    os.kill(rank, number)
    ended = nodes.ended()
    assert [each.code for each in ended.values()] == [0, 0], ended
    held = fence.newest_claim(training.store)
    assert held is not None and held.token == Token(1, 1)
    assert training.losses() == finished_by_two.losses()
    assert training.tensors() == finished_by_two.tensors()
    incident = incidents.read(training.store, str(Token(1)))
    assert (incident.kind, incident.ranks, incident.nodes) == (causes.KILLED, (1,), ("b",))
    assert number.name in incident.reason

"""Killed ranks and lost nodes: the job goes on in the same incarnation, as a new generation, with the same numbers."""

import os
from signal import SIGKILL, SIGSEGV, SIGSTOP, Signals

import pytest

from slipway.trainer.record import causes, fence, incidents, ledger
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.elastic.conftest import StartNodes
from tests.trainer.elastic.nodes import Fault, generation

pytestmark = pytest.mark.slow
ONE, TWO, THREE = ("a",), ("a", "b"), ("a", "b", "c")


@pytest.mark.parametrize("number", [SIGKILL, pytest.param(SIGSEGV, marks=pytest.mark.nightly)])
def test_a_killed_rank_is_answered_inside_the_incarnation_bit_for_bit(
    training: Training, finished_by_two: Training, start_nodes: StartNodes, number: Signals
) -> None:
    nodes = start_nodes(TWO, Fault(rank=1, step=8, number=number))
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    assert generation(training) == 1
    assert training.losses() == finished_by_two.losses()
    assert training.tensors() == finished_by_two.tensors()
    incident = incidents.read(training.store, str(Token(1)))
    assert (incident.kind, incident.ranks, incident.nodes) == (causes.KILLED, (1,), ("b",))
    assert number.name in incident.reason


@pytest.mark.nightly
def test_the_ledger_has_the_moments_of_a_recovery_in_their_order(training: Training, start_nodes: StartNodes) -> None:
    assert start_nodes(TWO, Fault(rank=0, step=8, number=SIGKILL)).ended() == [0, 0]
    parts = ("detected", "ranks_gone", "ranks_ready", "met", "restored", "stepped")
    moments = {event["event"]: event["t"] for event in ledger.read(training.store) if event["event"] in parts}
    assert set(parts) - set(moments) <= {"restored"}, "the first checkpoint may not be whole yet"
    assert sorted(moments, key=moments.__getitem__) == [part for part in parts if part in moments]


@pytest.mark.nightly
def test_a_lone_rank_that_is_killed_is_forked_anew(
    training: Training, finished: Training, start_nodes: StartNodes
) -> None:
    nodes = start_nodes(ONE, Fault(rank=0, step=8, number=SIGKILL))
    assert nodes.ended() == [0], nodes.log_of("a")
    assert generation(training) == 1
    assert training.losses() == finished.losses()
    assert training.tensors() == finished.tensors()


@pytest.mark.nightly
def test_the_ranks_of_the_only_node_meet_in_a_store_of_its_own(training: Training, start_nodes: StartNodes) -> None:
    nodes = start_nodes(ONE, Fault(rank=1, step=8, number=SIGKILL), ranks=2)
    assert nodes.ended() == [0], nodes.log_of("a")
    assert generation(training) == 1
    assert [event["world"] for event in training.events("started")] == [2, 2]


@pytest.mark.parametrize("lost", ["a", pytest.param("b", marks=pytest.mark.nightly)])
def test_the_other_nodes_go_on_without_a_lost_one(training: Training, start_nodes: StartNodes, lost: str) -> None:
    """The node of rank 0 too."""
    nodes = start_nodes(TWO, Fault(rank=0, step=8, number=SIGSTOP), least=1)
    training.until_frozen()
    nodes.lose(lost)
    [other] = {"a", "b"} - {lost}
    assert nodes.ended(other) == [0], nodes.log_of(other)
    assert generation(training) == 1
    assert [event["world"] for event in training.events("started")] == [2, 1]
    claim = fence.newest_claim(training.store)
    assert claim is not None and claim.nodes == (other,)
    assert [step for step, _ in training.losses()] == list(range(1, 21))
    incident = incidents.read(training.store, str(Token(1)))
    assert (incident.kind, incident.nodes, incident.ranks) == (causes.DISRUPTED, (lost,), (TWO.index(lost),))


@pytest.mark.nightly
def test_two_nodes_lost_at_once_leave_the_third(training: Training, start_nodes: StartNodes) -> None:
    nodes = start_nodes(THREE, Fault(rank=0, step=8, number=SIGSTOP), least=1)
    training.until_frozen()
    nodes.lose("a", "b")
    assert nodes.ended("c") == [0], nodes.log_of("c")
    assert [event["world"] for event in training.events("started")] == [3, 1]


@pytest.mark.nightly
def test_a_job_with_too_few_nodes_left_ends(training: Training, start_nodes: StartNodes) -> None:
    nodes = start_nodes(TWO, Fault(rank=0, step=8, number=SIGSTOP))
    training.until_frozen()
    nodes.lose("b")
    assert nodes.ended("a") == [1]
    assert "found 1 nodes, expected 2 or more; generation 0 ended: node b is lost" in nodes.log_of("a")
    assert generation(training) == 0


@pytest.mark.nightly
def test_a_fault_during_recovery_leads_to_one_more_generation(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    """The new rank is killed before it has done a step."""
    nodes = start_nodes(TWO, Fault(rank=1, step=8, number=SIGKILL))
    until(lambda: generation(training) == 1 and nodes.ranks("b"), "the new rank", 120)
    os.kill(nodes.ranks("b")[0], SIGKILL)
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    assert generation(training) == 2
    assert training.losses() == finished_by_two.losses()


@pytest.mark.nightly
def test_a_rank_that_dies_at_the_same_step_again_and_again_ends_the_job(
    training: Training, start_nodes: StartNodes
) -> None:
    nodes = start_nodes(ONE, Fault(rank=0, step=8, number=SIGKILL, times=1000))
    assert nodes.ended() == [128 + SIGKILL]
    assert 3 <= generation(training) <= 6
    assert "trainer: rank 0 on a was killed: SIGKILL" in nodes.log_of("a").splitlines()[-1]
    last = incidents.read(training.store, incidents.names(training.store)[-1])
    assert "made no progress beyond step" in last.reason and last.action == "ended the job"

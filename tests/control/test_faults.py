"""Faults: what is wrong with a job that the launcher believes in, and what one that does not run waits for. Pure."""

import pytest

from resources.fleet.protocol import Node
from resources.launcher.protocol import State, Status
from resources.training_faults import Fault, lost, pre_empted, progress_age, stranded, stuck, too_few
from trainer.heartbeat import Beat

ON_TWO = Status(State.RUNNING, nodes=("a", "b"))
READY = [Node("a", ready=True), Node("b", ready=True), Node("c", ready=True)]
DEAD = Node("b", ready=False, reason="its kubelet is silent")
CORDONED = Node("b", ready=False, reason="it is cordoned", cordoned=True)


def test_a_job_on_nodes_that_are_ready_has_lost_none():
    assert lost(ON_TWO, READY) is None


def test_a_dead_node_under_a_job_is_lost():
    cause = "node b is lost: its kubelet is silent"
    assert lost(ON_TWO, [READY[0], DEAD]) == Fault(cause, ("a", "b"), disrupted=True)


def test_a_node_that_left_the_fleet_is_lost_too():
    found = lost(ON_TWO, READY[:1])
    assert found is not None and found.cause == "node b is lost: it left the fleet"


def test_a_cordoned_node_is_not_lost():
    assert lost(ON_TWO, [READY[0], CORDONED]) is None


def test_dead_nodes_that_a_job_is_not_on_are_none_of_its_faults():
    assert lost(Status(State.RUNNING, nodes=("a",)), [READY[0], DEAD]) is None


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.STOPPED, State.MISSING])
def test_what_does_not_run_has_nothing_to_lose(state: State):
    assert lost(Status(state, nodes=("b",)), [DEAD]) is None


def test_a_job_that_waits_again_after_its_trainers_had_begun_was_pre_empted():
    waits = Status(State.PENDING, reason="suspended: queue gpus has not admitted it")
    assert pre_empted(waits, begun=True) == Fault(f"pre-empted: {waits.reason}", (), disrupted=True)


def test_one_that_waits_for_the_first_time_was_not():
    assert pre_empted(Status(State.PENDING), begun=False) is None
    assert pre_empted(Status(State.RUNNING), begun=True) is None


def test_a_job_that_waits_for_nodes_that_are_not_ready_any_more_is_stranded():
    found = stranded(Status(State.PENDING), ("a", "b"), [READY[0], DEAD, READY[2]], needed=2)
    assert found == Fault("of the nodes it was to run on 1 are ready, and it needs 2", (), disrupted=True)


def test_one_that_waits_for_nodes_that_others_occupy_is_not():
    assert stranded(Status(State.PENDING), ("a", "b"), READY, needed=2) is None
    assert stranded(Status(State.RUNNING), ("a", "b"), [DEAD], needed=2) is None


def test_trainers_that_do_not_move_are_stuck_and_that_is_their_own_fault():
    assert stuck(ON_TWO, age=59, limit=60) is None
    assert stuck(ON_TWO, age=61, limit=60) == Fault("no progress for 61 s (the deadline is 60 s)", ("a", "b"))
    assert stuck(Status(State.PENDING), age=61, limit=60) is None


def test_progress_is_counted_from_the_start_until_a_rank_has_moved():
    started = Status(State.RUNNING, submitted_at=10.0, started_at=20.0)
    assert progress_age([], started, now=50.0) == 30.0
    assert progress_age([Beat(0, "training", 3, at=49.0, progress_at=45.0)], started, now=50.0) == 5.0


def test_enough_nodes_are_nothing_to_wait_for():
    assert too_few(READY, needed=3) == ""


def test_too_few_nodes_are_told_with_the_reasons():
    assert too_few([READY[0], DEAD], needed=2) == (
        "of the fleet's 2 nodes 1 are ready, and it needs 2 (b: its kubelet is silent)"
    )


def test_of_many_nodes_that_are_away_some_are_named():
    told = too_few([Node(f"n{number}", ready=False, reason="off") for number in range(100)], needed=1)
    assert told.endswith("(n0: off; n1: off; n2: off; n3: off; n4: off; and 95 more)")

"""A node that is asked to stop, where a launcher replaces nodes: it leaves, and the others go on."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.elastic import rendezvous
from slipway.trainer.elastic.generations import LOST, STOP_REQUESTED, STOPPING, Arrival, End, Members, key
from slipway.trainer.elastic.job_store import JobStore
from slipway.trainer.elastic.rendezvous import GenerationOver
from slipway.trainer.elastic.stop_signal import StopSignal
from slipway.trainer.elastic.verdict import RankFault
from slipway.trainer.record import causes, fence
from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.elastic.nodes import Fault, SupervisedNodes, generation

A, B = Arrival("a", 0, 1, "10.0.0.1"), Arrival("b", 1, 1, "10.0.0.2")
MEMBERS = Members(1, 0, (A, B), at=0.0)
ENDED_BY_SIGTERM = RankFault(
    1, causes.STOP_REQUESTED, "rank 1 on b was killed: SIGTERM", 128 + signal.SIGTERM, final=True
)


@pytest.fixture
def store() -> JobStore:
    return JobStore.alone()


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def broadcast_stop(store: JobStore, node: str, replaced: bool) -> StopSignal:
    """The stop signal of a node that has heard SIGTERM and told the others."""
    word = StopSignal(store, node, replaced)
    os.kill(os.getpid(), signal.SIGTERM)
    word.broadcast()
    return word


def test_where_nodes_are_replaced_the_job_ends_when_all_of_them_are_asked(store: JobStore) -> None:
    word = broadcast_stop(store, "b", replaced=True)
    assert word.leaves and not word.ends(MEMBERS) and not word.is_final(ENDED_BY_SIGTERM, MEMBERS)
    broadcast_stop(store, "a", replaced=True)
    assert word.ends(MEMBERS) and word.is_final(ENDED_BY_SIGTERM, MEMBERS)


def test_where_none_is_replaced_one_of_them_is_enough(store: JobStore) -> None:
    word = broadcast_stop(store, "b", replaced=False)
    assert not word.leaves and word.ends(MEMBERS) and word.is_final(ENDED_BY_SIGTERM, MEMBERS)
    assert store.has(STOPPING)


def test_a_fault_that_no_start_mends_ends_the_job_though_its_node_leaves(store: JobStore) -> None:
    word = broadcast_stop(store, "b", replaced=True)
    assert word.is_final(RankFault(1, causes.CONFIGURATION, "", 2, final=True), MEMBERS)


def test_a_node_that_leaves_between_two_generations_ends_neither_and_is_waited_for_by_nobody(store: JobStore) -> None:
    word = broadcast_stop(store, "b", replaced=True)
    with pytest.raises(GenerationOver) as over:
        word.raise_if_stopped(1)
    assert (over.value.end.node, over.value.end.code) == ("b", 128 + signal.SIGTERM)
    assert store.has(f"{LOST}/b") and store.read(key(1, "end"), End) is None


def test_a_node_that_nobody_replaces_ends_the_generation_that_has_not_begun(store: JobStore) -> None:
    word = broadcast_stop(store, "b", replaced=False)
    with pytest.raises(GenerationOver):
        word.raise_if_stopped(1)
    end = store.read(key(1, "end"), End)
    assert end is not None and end.final and end.kind == causes.STOP_REQUESTED


def test_a_node_that_waits_beside_the_ranks_of_others_leaves_them_alone(store: JobStore) -> None:
    word = StopSignal(store, "b", replaced=False)
    word.is_waiting = True
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(GenerationOver):
        word.raise_if_stopped(1)
    assert word.leaves and store.has(f"{LOST}/b")
    assert not store.has(STOPPING) and store.read(key(1, "end"), End) is None


def test_a_new_pod_in_the_place_of_one_that_was_asked_is_not_asked_itself_and_no_failure(store: JobStore) -> None:
    store.write(key(0, "members"), MEMBERS)
    broadcast_stop(store, "b", replaced=True)
    rendezvous.underway(store, B, stays=False)
    assert not store.has(f"{STOP_REQUESTED}/b")
    end = store.read(key(0, "end"), End)
    assert end is not None and (end.kind, end.final) == (causes.STOP_REQUESTED, False)
    assert end.reason == "node b was asked to stop, and is back"


STEPS, FROZEN_AFTER = 24, 8
FROZEN = Fault(rank=0, step=FROZEN_AFTER, number=signal.SIGSTOP)


def leaves(training: Training, nodes: SupervisedNodes, name: str) -> None:
    """Ask a node to stop while the ranks are in a step, and wait until it has left."""
    training.until_frozen()
    nodes.processes[name].send_signal(signal.SIGTERM)
    until(lambda: nodes.is_asked(name), "the others to hear of it")
    training.thaw()
    assert nodes.ended(name) == [128 + signal.SIGTERM], nodes.log_of(name)


def started(training: Training, least: int) -> "contextlib.closing[SupervisedNodes]":
    """Two nodes, of which each is replaced that ends."""
    return contextlib.closing(SupervisedNodes(training, ("a", "b"), FROZEN, least, replaced_seconds=120.0))


def configured(folder: Path, mark: str, survivors: str) -> Training:
    return Training(
        folder, mark, run={"steps": STEPS, "seed": 3}, checkpoint={"every": 100}, recovery={"survivors": survivors}
    )


@pytest.mark.nightly
@pytest.mark.parametrize("survivors", ["stay", "leave"])
@pytest.mark.parametrize("name", ["a", "b"], ids=["of rank 0", "of rank 1"])
def test_the_others_go_on_without_a_node_that_is_drained_and_no_step_is_lost(
    tmp_path: Path, mark: str, survivors: str, name: str
) -> None:
    training = configured(tmp_path, mark, survivors)
    other = {"a": "b", "b": "a"}[name]
    with started(training, least=1) as nodes:
        leaves(training, nodes, name)
        assert nodes.ended(other) == [0], nodes.log_of(other)
    assert [claim.nodes for claim in fence.claims(training.store)] == [("a", "b"), (other,)]
    steps = [event["step"] for event in training.events("step")]
    assert sorted(set(steps)) == list(range(1, STEPS + 1)) and len(steps) <= STEPS + 1
    assert not (training.store / "incidents").exists()


@pytest.mark.nightly
def test_a_job_that_needs_all_its_nodes_waits_for_the_one_that_takes_the_place(tmp_path: Path, mark: str) -> None:
    training = configured(tmp_path, mark, "stay")
    with started(training, least=2) as nodes:
        leaves(training, nodes, "b")
        nodes.bring_back("b")
        assert nodes.ended() == [0, 0], nodes.log_of("a")
    assert [claim.nodes for claim in fence.claims(training.store)] == [("a", "b"), ("a", "b")]


@pytest.mark.nightly
def test_a_job_all_of_whose_nodes_are_asked_stops_with_a_checkpoint_and_goes_on_where_they_are_started_anew(
    tmp_path: Path, mark: str
) -> None:
    training = configured(tmp_path, mark, "stay")
    with started(training, least=1) as nodes:
        training.until_frozen()
        for process in nodes.processes.values():
            process.send_signal(signal.SIGTERM)
        training.thaw()
        assert nodes.ended() == [128 + signal.SIGTERM] * 2, nodes.log_of("a")
        assert generation(training) == 0 and training.commits()[-1].step >= FROZEN_AFTER
        for name in ("a", "b"):  # as the launcher does when all of them are drained
            nodes.bring_back(name)
        assert nodes.ended() == [0, 0], nodes.log_of("a")
    assert not (training.store / "incidents").exists()

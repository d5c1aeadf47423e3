"""A node that comes to a job that runs: whom it stands for, and who takes part in the next generation."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import PrefixStore, TCPStore

from slipway.trainer.elastic import rendezvous
from slipway.trainer.elastic.generations import LOST, STOPPING, Arrival, End, Members, StopAsked, key
from slipway.trainer.elastic.job_store import JobStore
from slipway.trainer.elastic.liveness import LOST_SECONDS, NodeLiveness
from slipway.trainer.elastic.rendezvous import RETURN_SECONDS, GenerationOver, NodeCount, Rendezvous
from slipway.trainer.record import causes

A, B = Arrival("a", 0, 1, "10.0.0.1"), Arrival("b", 1, 1, "10.0.0.2")
OTHER_ARRIVAL = Arrival("c", 1, 1, "10.0.0.3")
"""A new pod with the index of b, on another node."""


@pytest.fixture
def store() -> JobStore:
    return JobStore.alone()


def running(store: JobStore, *nodes: Arrival, generation: int = 0) -> Members:
    """Have these nodes in a generation that runs."""
    members = Members(1, generation, nodes, at=0.0)
    store.write(key(generation, "members"), members)
    return members


def ended(store: JobStore, generation: int = 0) -> End | None:
    return store.read(key(generation, "end"), End)


def test_a_node_of_a_job_that_has_not_begun_finds_no_generation(store: JobStore) -> None:
    assert rendezvous.underway(store, A, stays=False) is None


def test_a_node_that_is_back_ends_the_generation_that_it_was_a_part_of(store: JobStore) -> None:
    store.write(f"{LOST}/b", {})
    members = running(store, A, B)
    assert rendezvous.underway(store, B, stays=True) == members
    end = ended(store)
    assert end is not None and (end.kind, end.nodes, end.joins, end.ranks_stay) == (
        causes.DISRUPTED,
        ("b",),
        ("b",),
        True,
    )
    assert end.reason == "node b was lost, and is back"
    assert not store.has(f"{LOST}/b")


def test_a_node_with_the_index_of_a_member_stands_for_it_and_nobody_waits_for_that_one(store: JobStore) -> None:
    running(store, A, B, generation=0)
    newest = running(store, A, B, generation=1)
    assert rendezvous.underway(store, OTHER_ARRIVAL, stays=False) == newest
    end = ended(store, generation=1)
    assert end is not None and (end.nodes, end.joins) == (("b",), ("c",))
    assert end.reason == "node b was lost, and c is here in its place"
    assert store.has(f"{LOST}/b") and ended(store) is None


def test_a_node_that_a_job_went_on_without_ends_nothing(store: JobStore) -> None:
    members = running(store, A)
    assert rendezvous.underway(store, B, stays=False) == members
    assert ended(store) is None


def test_nodes_without_an_index_stand_for_nobody_but_themselves(store: JobStore) -> None:
    running(store, Arrival("a", -1, 1, "127.0.0.1"))
    rendezvous.underway(store, Arrival("b", -1, 1, "127.0.0.1"), stays=False)
    assert ended(store) is None


def test_a_node_that_is_back_while_the_job_stops_does_not_prolong_it(store: JobStore) -> None:
    running(store, A, B)
    store.write(STOPPING, StopAsked("a"))
    rendezvous.underway(store, B, stays=False)
    end = ended(store)
    assert end is not None and end.final


class Waited(Exception):
    """The meeting would wait on."""


def members_of(store: JobStore, own: Arrival, count: NodeCount, before: Members | None) -> Members:
    """The members that this node names; raises Waited where it waits for others."""

    def wait(generation: int) -> None:
        raise Waited

    def all_of(arrived: Sequence[Arrival], before: Members | None) -> tuple[Arrival, ...]:
        return tuple(arrived)

    node_rendezvous = Rendezvous(
        store, NodeLiveness(store, own.node), own, count, 1, all_of, lambda members, cause: None, wait
    )
    return node_rendezvous.members(before.generation + 1 if before else 0, before, "a test")


def arrive(store: JobStore, generation: int, node: Arrival) -> None:
    store.write(key(generation, "arrived", store.number(key(generation, "arrivals"))), node)


def test_a_pod_that_was_replaced_while_the_others_were_on_their_way_counts_once(store: JobStore) -> None:
    arrive(store, 0, B)
    arrive(store, 0, OTHER_ARRIVAL)
    with pytest.raises(Waited):
        members_of(store, A, NodeCount(3, 3), None)
    arrive(store, 0, Arrival("d", 2, 1, "10.0.0.4"))
    assert [arrival.node for arrival in members_of(store, A, NodeCount(3, 3), None).nodes] == ["a", "c", "d"]


def test_a_job_with_too_few_nodes_waits_for_a_new_pod_where_one_comes(store: JobStore) -> None:
    before = running(store, A, B)
    store.write(f"{LOST}/b", {})
    with pytest.raises(Waited):
        members_of(store, A, NodeCount(2, 2, replaced_seconds=60.0), before)
    arrive(store, 1, OTHER_ARRIVAL)
    assert [arrival.node for arrival in members_of(store, A, NodeCount(2, 2, replaced_seconds=60.0), before).nodes] == [
        "a",
        "c",
    ]


def test_without_one_it_ends_and_says_what_it_lacks(store: JobStore) -> None:
    before = running(store, A, B)
    store.write(f"{LOST}/b", {})
    with pytest.raises(GenerationOver, match="found 1 nodes, expected 2 or more"):
        members_of(store, A, NodeCount(2, 2), before)


def test_a_job_that_may_have_fewer_nodes_waits_for_none(store: JobStore) -> None:
    before = running(store, A, B)
    store.write(f"{LOST}/b", {})
    assert members_of(store, A, NodeCount(1, 2, replaced_seconds=60.0), before).nodes == (A,)


@pytest.mark.parametrize(("replaced_seconds", "patience"), [(0.0, LOST_SECONDS), (60.0, RETURN_SECONDS)])
def test_a_silent_node_is_waited_for_longer_where_the_launcher_starts_it_anew(
    store: JobStore, replaced_seconds: float, patience: float
) -> None:
    before, now = running(store, A, B), [100.0]

    def wait(generation: int) -> None:
        now[0] += 1.0

    count = NodeCount(1, 2, replaced_seconds)
    node_rendezvous = Rendezvous(
        store, NodeLiveness(store, "a", lambda: now[0]), A, count, 1, lambda arrivals, _: tuple(arrivals), nothing, wait
    )
    assert node_rendezvous.members(1, before, "a test").nodes == (A,)
    assert patience < now[0] - 100.0 <= patience + 2


def test_the_word_to_dump_of_one_generation_is_gone_when_the_ranks_of_the_next_one_connect() -> None:
    """ProcessGroupNCCL writes it below no prefix; its monitor would end the ranks of each later generation for it."""
    job = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    store = JobStore.connected("127.0.0.1", job.port, 60)
    before = running(store, A, B)
    ranks: Any = PrefixStore(key(0, "ranks"), job)
    ranks._underlying_non_prefix_store.set("exception_dump", "0000")
    store.write(f"{LOST}/b", {})
    assert members_of(store, A, NodeCount(1, 2), before).generation == 1
    assert not job.check(["exception_dump"])


def nothing(members: Members, cause: str) -> None:
    """The token is granted."""

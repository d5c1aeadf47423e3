"""Rendezvous: the supervisors of a job agree on the nodes of a generation, and on their order.

Each node arrives, and the first node in order closes the meeting. At the start, it does so when all nodes of the job
have arrived or, if the job may have fewer, some time after enough have. Later, it does so when all nodes of the
generation before, and those for which it ended, have arrived or are lost. If too few are left then, and the launcher
starts lost nodes anew, the first node waits for these for a while. It claims the token of the generation before it
names the members, so every member may write. If it is lost in between, the next node in order does the same: the first
list of members stands.

The layout decides how many of the arrived nodes take part, because a replica of several nodes is whole or absent. The
nodes of a replica that has lost a node are left out first: the whole replicas hold every part of the state. Nodes that
are left out wait, and take part when their number makes a whole replica again.

A node may stand outside a running generation: it was lost and is back, or it came to the meeting too late, or the
layout left it out. It asks to take part, and waits with all imports done. Rank 0 learns of it and ends the generation
between two steps (`slipway.trainer.elastic.scaling`). A node that replaces a dead member ends the generation at once,
because the member's ranks are gone. It is that node itself, or another machine with its number in the job: a launcher
that gives numbers gives each to one node at a time.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import layout
from slipway.trainer.config.layout import LayoutSettings
from slipway.trainer.elastic.generations import DUMP, LOST, OVER, STOP_REQUESTED, STOPPING, Arrival, End, Members, key
from slipway.trainer.elastic.job_store import JobStore, StoreGone
from slipway.trainer.elastic.liveness import LOST_SECONDS, NodeLiveness
from slipway.trainer.record import causes

JOIN_SECONDS = 900.0
"""Time for the nodes to meet at the start, when some still pull their image."""
LAST_CALL_SECONDS = 30.0
"""At the start, the wait of a job that may have fewer nodes for the others, once enough have arrived."""
RETURN_SECONDS = 30.0
"""The wait for a silent node that the launcher starts anew: Kubernetes makes a new pod after 10 s."""


class GenerationOver(Exception):
    """The generation ends before it has begun."""

    def __init__(self, end: End) -> None:
        super().__init__(end.reason)
        self.end = end


@dataclass(frozen=True)
class NodeCount:
    """The number of nodes of a job."""

    least: int
    most: int
    replaced_seconds: float = 0.0
    """The time that a job with too few nodes waits for a replacement of a lost node; 0 if there are none."""


class Rendezvous:
    """One supervisor's part in the meetings of its job."""

    def __init__(
        self,
        store: JobStore,
        liveness: NodeLiveness,
        own: Arrival,
        nodes: NodeCount,
        incarnation: int,
        choose: Callable[[Sequence[Arrival], Members | None], tuple[Arrival, ...]],
        grant: Callable[[Members, str], End | None],
        pause: Callable[[int], None],
    ) -> None:
        """Take part for this node.

        `choose(arrived, before)` returns the arrived nodes that take part, with the members of the generation before.
        `grant(members, reason)` claims the token for the members; it returns an End if it cannot. `pause(generation)`
        is called between two readings of the store, and may raise GenerationOver.
        """
        self._store = store
        self._liveness = liveness
        self._own = own
        self._nodes = nodes
        self._incarnation = incarnation
        self._choose = choose
        self._grant = grant
        self._pause = pause
        self._patience = RETURN_SECONDS if nodes.replaced_seconds else LOST_SECONDS
        self._known: dict[str, Arrival] = {}
        """The arrivals read so far, by key: they do not change."""

    def members(self, generation: int, before: Members | None, cause: str, joins: Sequence[str] = ()) -> Members:
        """Meet for a generation; returns its members, perhaps without this node.

        before: the members of the generation before; None at the start. joins: nodes for which the meeting waits beside
        them. Raises GenerationOver and StoreGone.
        """
        number = self._store.number(key(generation, "arrivals"))
        self._store.write(key(generation, "arrived", number), self._own)
        begun = time.monotonic()
        while True:
            end = self._store.read(key(generation, "end"), End)
            if end:
                raise GenerationOver(end)
            members = self._store.read(key(generation, "members"), Members)
            if members:
                return members
            arrived = self._arrived(generation)
            if arrived and arrived[0] == self._own and self._complete(arrived, before, joins, begun):
                self._close(generation, self._choose(arrived, before), cause)
            else:
                self._pause(generation)

    def _arrived(self, generation: int) -> list[Arrival]:
        """The nodes that have arrived and are not lost, in the order of their ranks."""
        for number in range(self._store.count(key(generation, "arrivals"))):
            name = key(generation, "arrived", number)
            if name in self._known:
                continue
            arrival = self._store.read(name, Arrival)
            if arrival:
                self._known[name] = arrival
        arrivals = [arrival for name, arrival in self._known.items() if name.startswith(key(generation, "arrived", ""))]
        living = [arrival for arrival in arrivals if arrival == self._own or not self._is_lost(arrival.node)]
        # A node that was started anew while the others were still on their way has arrived twice.
        last = {arrival.index if arrival.index >= 0 else arrival.node: arrival for arrival in living}
        return sorted(last.values(), key=lambda arrival: (arrival.index, arrival.node))

    def _complete(self, arrived: Sequence[Arrival], before: Members | None, joins: Sequence[str], begun: float) -> bool:
        if len(arrived) >= self._nodes.most:
            return True
        if before is None:
            waited = LAST_CALL_SECONDS if len(arrived) >= self._nodes.least else JOIN_SECONDS
            return time.monotonic() - begun > waited
        arrived_nodes = {arrival.node for arrival in arrived}
        expected_nodes = [*(member.node for member in before.nodes), *joins]
        if not all(node in arrived_nodes or self._is_lost(node) for node in expected_nodes):
            return False
        return len(arrived) >= self._nodes.least or time.monotonic() - begun > self._nodes.replaced_seconds

    def _is_lost(self, node: str) -> bool:
        return bool(self._liveness.lost(node, self._patience))

    def _close(self, generation: int, nodes: tuple[Arrival, ...], cause: str) -> None:
        """Name the members, or end the generation if they are too few or get no token."""
        members = Members(self._incarnation, generation, nodes, time.time())
        end = self._too_few(len(nodes), cause) or self._grant(members, cause)
        if end is None:
            self._store.remove(DUMP)  # ranks of the generation before are in no collective, and this one has none yet
            self._store.write_first(key(generation, "members"), members)
        else:
            self._store.write_first(key(generation, "end"), end)

    def _too_few(self, node_count: int, cause: str) -> End | None:
        if node_count >= self._nodes.least:
            return None
        reason = f"found {node_count} nodes, expected {self._nodes.least} or more; {cause}"
        return End(self._own.node, causes.DISRUPTED, reason, final=True, code=1, at=time.time())


def chosen(
    arrived: Sequence[Arrival], before: Members | None, most: int, settings: LayoutSettings
) -> tuple[Arrival, ...]:
    """The nodes that take part, in the order of `arrived`: all, up to `most`, if the layout fits no number of them.

    before: the generation before; None at the start.
    """
    count = layout.fitting(settings, arrived[0].ranks, min(most, len(arrived))) or min(most, len(arrived))
    arrived_nodes = {arrival.node for arrival in arrived}
    broken = _broken(before, arrived_nodes, settings) if before else set[str]()
    selection = sorted(range(len(arrived)), key=lambda index: (arrived[index].node in broken, index))[:count]
    return tuple(arrived[index] for index in sorted(selection))


def underway(store: JobStore, own: Arrival, stays: bool) -> Members | None:
    """The newest generation of the job, or None; from now on this node is neither lost nor asked to stop.

    If this node replaces a member of that generation, the generation is over; a replaced member on another machine is
    lost from now on. Raises StoreGone.
    """
    store.remove(f"{LOST}/{own.node}")
    members = newest = store.read(key(0, "members"), Members)
    while members:
        newest = members
        members = store.read(key(members.generation + 1, "members"), Members)
    before = _predecessor(newest, own) if newest else ""
    if newest and before:
        kind = causes.DISRUPTED
        what = "lost"
        if store.has(f"{STOP_REQUESTED}/{before}"):
            kind = causes.STOP_REQUESTED
            what = "asked to stop"
        if before == own.node:
            reason = f"node {before} was {what}, and is back"
        else:
            store.write(f"{LOST}/{before}", {})
            reason = f"node {before} was {what}, and {own.node} is here in its place"
        at = time.time()
        joins = (own.node,)
        end = End(own.node, kind, reason, store.has(STOPPING), 1, at, (), (before,), ranks_stay=stays, joins=joins)
        store.write_first(key(newest.generation, "end"), end)
    store.remove(f"{STOP_REQUESTED}/{own.node}")
    return newest


def ask_to_join(store: JobStore, members: Members, own: Arrival, most: int) -> None:
    """Tell rank 0 that this node waits, if the generation has fewer nodes than the job may have. Raises StoreGone."""
    if len(members.nodes) < most and not members.has(own.node):
        store.write(key(members.generation, "waiting", store.number(key(members.generation, "waits"))), own)


def tell_over(store: JobStore) -> None:
    """Tell the store that the job is over, so that it does not wait for nodes to come back; ignores a lost store."""
    with contextlib.suppress(StoreGone):
        store.write(OVER, {})


def _broken(before: Members, arrived_nodes: set[str], settings: LayoutSettings) -> set[str]:
    """The nodes of replicas that are no longer whole, and the nodes that were in no replica."""
    try:
        mesh = layout.check(settings, before.world, before.nodes[0].ranks)
    except Invalid:
        return set()
    replicas = dict[str, set[int]]()
    for node in before.nodes:
        first = before.first_rank(node.node)
        ranks = range(first, first + node.ranks)
        replicas[node.node] = {mesh.gradient_rank(rank) // mesh.shards for rank in ranks}
    lost = set[int]().union(*(node_replicas for node, node_replicas in replicas.items() if node not in arrived_nodes))
    return {node for node, node_replicas in replicas.items() if node_replicas & lost} | (
        arrived_nodes - replicas.keys()
    )


def _predecessor(members: Members, own: Arrival) -> str:
    """The member that this node replaces; empty if there is none."""
    for member in members.nodes:
        if member.node == own.node or member.index == own.index >= 0:
            return member.node
    return ""

"""Meeting: the supervisors of a job find out which nodes take part in a generation, and in which order.

Each node arrives. The first node in order closes the meeting: at the start when all nodes of the job have arrived or,
for a job that may have fewer, some time after enough have; later when all nodes of the generation before, and those for
which it ended, have arrived or are lost. Where too few are left then, and the launcher starts lost nodes anew, it
waits for these for a while. It claims the token of the generation before it names the members, so that whoever is among
them may write. Should it be lost in between, the next one in order does the same again: the first list of members
stands.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipway.trainer.node.generations import DUMP, Arrival, End, Members, key
from slipway.trainer.record import causes
from slipway.trainer.supervisor.job_store import JobStore
from slipway.trainer.supervisor.pulse import LOST_SECONDS, Pulse

JOIN_SECONDS = 900.0
"""Time for the nodes to find each other at the start, as some still pull their image."""
LAST_CALL_SECONDS = 30.0
"""How long a job that may have fewer nodes waits at the start for the rest, once enough have arrived."""

RETURN_SECONDS = 30.0
"""How long a silent node is waited for that the launcher starts anew: Kubernetes makes a new pod after 10 s."""


class GenerationOver(Exception):
    """The generation ends before it has begun."""

    def __init__(self, end: End) -> None:
        super().__init__(end.reason)
        self.end = end


@dataclass(frozen=True)
class NodeCount:
    """How many nodes a job takes."""

    least: int
    most: int
    replaced_seconds: float = 0.0
    """How long a job with too few nodes waits for one in the place of a lost one; 0 where none comes."""


class Meeting:
    """One supervisor's part in the meetings of its job."""

    def __init__(
        self,
        store: JobStore,
        pulse: Pulse,
        own: Arrival,
        nodes: NodeCount,
        incarnation: int,
        choose: Callable[[Sequence[Arrival], Members | None], tuple[Arrival, ...]],
        grant: Callable[[Members, str], End | None],
        pause: Callable[[int], None],
    ) -> None:
        """Take part for this node.

        `choose` says which of those that have arrived take part, after the members of the generation before. `grant`
        claims the token for members, for the reason given, or says why not. `pause` is called between two looks with
        the generation, and may raise GenerationOver.
        """
        self._store, self._pulse, self._own, self._nodes = store, pulse, own, nodes
        self._incarnation, self._choose, self._grant, self._pause = incarnation, choose, grant, pause
        self._patience = RETURN_SECONDS if nodes.replaced_seconds else LOST_SECONDS
        self._known: dict[str, Arrival] = {}
        """The arrivals that were read, by key: they do not change."""

    def members(self, generation: int, before: Members | None, cause: str, joins: Sequence[str] = ()) -> Members:
        """Meet for a generation; who takes part in it, which may be without this node.

        before: those of the generation before; None at the start. joins: nodes that are waited for beside them. Raises
        GenerationOver and StoreGone.
        """
        place = self._store.number(key(generation, "arrivals"))
        self._store.write(key(generation, "arrived", place), self._own)
        begun = time.monotonic()
        while True:
            if end := self._store.read(key(generation, "end"), End):
                raise GenerationOver(end)
            if found := self._store.read(key(generation, "members"), Members):
                return found
            arrived = self._arrived(generation)
            if arrived and arrived[0] == self._own and self._complete(arrived, before, joins, begun):
                self._close(generation, self._choose(arrived, before), cause)
            else:
                self._pause(generation)

    def _arrived(self, generation: int) -> list[Arrival]:
        """The nodes that have arrived and are not lost, in the order of their ranks."""
        for place in range(self._store.count(key(generation, "arrivals"))):
            name = key(generation, "arrived", place)
            if name not in self._known and (arrival := self._store.read(name, Arrival)):
                self._known[name] = arrival
        here = [each for name, each in self._known.items() if name.startswith(key(generation, "arrived", ""))]
        living = [each for each in here if each == self._own or not self._is_lost(each.node)]
        # One that was started anew while the others were still on their way has arrived twice.
        last = {each.index if each.index >= 0 else each.node: each for each in living}
        return sorted(last.values(), key=lambda each: (each.index, each.node))

    def _complete(self, arrived: Sequence[Arrival], before: Members | None, joins: Sequence[str], begun: float) -> bool:
        if len(arrived) >= self._nodes.most:
            return True
        if before is None:
            waited = LAST_CALL_SECONDS if len(arrived) >= self._nodes.least else JOIN_SECONDS
            return time.monotonic() - begun > waited
        here = {each.node for each in arrived}
        if not all(node in here or self._is_lost(node) for node in (*(each.node for each in before.nodes), *joins)):
            return False
        return len(arrived) >= self._nodes.least or time.monotonic() - begun > self._nodes.replaced_seconds

    def _is_lost(self, node: str) -> bool:
        return bool(self._pulse.lost(node, self._patience))

    def _close(self, generation: int, nodes: tuple[Arrival, ...], cause: str) -> None:
        """Name the members, or end the generation when they are too few or get no token."""
        members = Members(self._incarnation, generation, nodes, time.time())
        end = self._too_few(len(nodes), cause) or self._grant(members, cause)
        if end is None:
            self._store.remove(DUMP)  # no rank of the generation before is in an exchange, and none of this one is yet
            self._store.write_first(key(generation, "members"), members)
        else:
            self._store.write_first(key(generation, "end"), end)

    def _too_few(self, found: int, cause: str) -> End | None:
        if found >= self._nodes.least:
            return None
        reason = f"found {found} nodes, expected {self._nodes.least} or more; {cause}"
        return End(self._own.node, causes.DISRUPTED, reason, final=True, code=1, at=time.time())

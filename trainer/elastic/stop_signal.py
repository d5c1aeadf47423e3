"""The stop signal: the consequences for a job when one of its nodes is asked to stop (SIGTERM).

If nodes are not replaced, the whole job stops: the current generation is the last one. If the launcher starts a node
that has ended anew, on a machine that is not drained, only this node leaves, and the job goes on without it; the job
stops if all nodes of a generation are asked. The ranks save a checkpoint first in both cases
(`slipway.trainer.elastic.scaling`). A node without ranks, which waits for the next generation, always leaves alone.
"""

import signal
import time
from types import FrameType

from slipway.trainer.elastic.generations import LOST, STOP_REQUESTED, STOPPING, End, Members, StopAsked, key
from slipway.trainer.elastic.job_store import JobStore
from slipway.trainer.elastic.rendezvous import GenerationOver
from slipway.trainer.elastic.verdict import RankFault
from slipway.trainer.record import causes

BY_SIGNAL = "asked to stop by SIGTERM"


class StopSignal:
    """One supervisor's handling of SIGTERM, and its messages about it to the others."""

    def __init__(self, store: JobStore, node: str, replaced: bool) -> None:
        """Listen for SIGTERM. `replaced`: whether a node that ends is started anew."""
        self._store = store
        self._node = node
        self._replaced = replaced
        self.is_requested = False
        """Whether this node was asked to stop."""
        self.is_waiting = False
        """Whether this node waits for the next generation, while other nodes have ranks."""
        signal.signal(signal.SIGTERM, self._hear)

    @property
    def leaves(self) -> bool:
        """Whether this node leaves and the job may go on."""
        return self.is_requested and (self._replaced or self.is_waiting)

    def broadcast(self) -> None:
        """Tell the other nodes that this one was asked. Raises StoreGone."""
        if self._replaced:
            self._store.write(f"{STOP_REQUESTED}/{self._node}", {})
        elif not self.is_waiting:
            self._store.write_first(STOPPING, StopAsked(self._node))

    def raise_if_stopped(self, generation: int) -> None:
        """Raises GenerationOver if this node was asked before it has ranks in this generation. Raises StoreGone."""
        if not self.is_requested:
            return
        end = End(self._node, causes.STOP_REQUESTED, BY_SIGNAL, final=True, code=128 + signal.SIGTERM, at=time.time())
        self.broadcast()
        if self.leaves:
            self._store.write(f"{LOST}/{self._node}", {})  # the others need not wait for it
        else:
            end = self._store.write_first(key(generation, "end"), end)
        raise GenerationOver(end)

    def ends(self, members: Members) -> bool:
        """Whether the generation of these members is the last one of the job. Raises StoreGone."""
        if self._replaced:
            return all(self._store.has(f"{STOP_REQUESTED}/{member.node}") for member in members.nodes)
        return self.is_requested or self._store.has(STOPPING)

    def is_final(self, fault: RankFault, members: Members) -> bool:
        """Whether the job ends with the end of a rank. Raises StoreGone."""
        # A rank that is asked to stop with its node ends with the node; the others may go on.
        alone = fault.kind == causes.STOP_REQUESTED and self.leaves
        return (fault.final and not alone) or self.ends(members)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.is_requested = True

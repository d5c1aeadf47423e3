"""Liveness: the supervisor of each node beats in the job's store, and reads the beats of the others.

The launcher may announce at once that a node is lost. If it does not watch its nodes, a supervisor without a beat for a
while counts as lost; the reader's own clock measures this time.

A helper process also beats for the supervisor (`start`), which has no time for it between two generations: it then
writes to the durable tier, waits for the end of ranks, and collects their stacks. A tier that stalls must not make the
node look lost. The supervisor cannot use a second thread, because it forks. It beats itself too while it watches ranks,
so that the death of the helper process does not make the node look lost.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from slipway.trainer.base import forked
from slipway.trainer.diagnosis import stacks
from slipway.trainer.elastic.generations import ALIVE, LOST
from slipway.trainer.elastic.job_store import CONNECT_SECONDS, JobStore, StoreGone

BEAT_SECONDS = 1.0
LOST_SECONDS = 10.0
"""Ten missing beats. A node that wrongly counts as lost costs at most the steps since its last checkpoint, and comes
back in the same way as any lost node."""


@dataclass
class SupervisorSight:
    """One supervisor's observation of another."""

    number: int
    """The number of its last beat."""
    looked: float
    """The time of the last reading, by the reader's monotonic clock."""
    silent: float = 0.0
    """Seconds over which the number has stayed the same."""


class NodeLiveness:
    """One supervisor's own beat, and its observations of the others."""

    def __init__(self, store: JobStore, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._node = node
        self._clock = clock
        self._beaten = 0.0
        self._sights: dict[str, SupervisorSight] = {}

    def beat(self) -> None:
        """Beat, at most once a second."""
        if not self._beaten or self._clock() - self._beaten >= BEAT_SECONDS:
            self._store.number(f"{ALIVE}/{self._node}")
            self._beaten = self._clock()

    def lost(self, node: str, after: float = LOST_SECONDS) -> str:
        """Why a node is lost, in one sentence; empty if it is not. A node is lost after `after` seconds of silence."""
        if self._store.has(f"{LOST}/{node}"):
            return f"node {node} is lost"
        sight = self._sights.get(node)
        # Within a second there can be no new beat to read.
        is_recent = sight and self._clock() - sight.looked < BEAT_SECONDS
        silent = sight.silent if sight and is_recent else self.silence(node)
        if silent <= after:
            return ""
        return f"node {node} is lost: no sign of life for {silent:.0f} s"

    def silence(self, node: str) -> float:
        """Seconds since the last new beat of a node's supervisor, as far as this process has read the store.

        A reading counts for at most two seconds: if this process had to wait between two readings, the other may have
        had to wait for the same.
        """
        now = self._clock()
        sight = self._sights.get(node)
        number = self._store.count(f"{ALIVE}/{node}")
        if sight and number == sight.number:
            sight.silent += min(now - sight.looked, 2 * BEAT_SECONDS)
            sight.looked = now
        else:
            sight = SupervisorSight(number, now)
            self._sights[node] = sight
        return sight.silent


def start(host: str, port: int, node: str) -> int:
    """Start the helper process, which dies with this one; returns its pid. Call it before any thread is started."""
    return forked.start_helper(__name__, functools.partial(_live, os.getpid(), host, port, node))


def _live(supervisor: int, host: str, port: int, node: str) -> None:
    """The main function of the helper process. It ends if the store is gone: the supervisor notices that itself."""
    with contextlib.suppress(StoreGone):
        liveness = NodeLiveness(JobStore.connected(host, port, CONNECT_SECONDS), node)
        while True:
            if stacks.state(supervisor) != stacks.STOPPED:
                liveness.beat()
            time.sleep(BEAT_SECONDS)

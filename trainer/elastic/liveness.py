"""Liveness: the supervisor of each node shows that it lives, and sees whether another one does.

The launcher may say at once that a node is lost. Without a launcher that sees its nodes, a supervisor that has shown
nothing for a while counts as lost; the ages are by the clock of who looks.

While a supervisor has no time to give a sign of life, a helper process gives it (`start`). Between two generations a
supervisor writes to the durable tier, waits for ranks to be gone, and asks them where they are. A tier that stalls must
not make its node look lost. The supervisor cannot have a second thread, as it forks. It shows its life itself too while
it watches, so that a node is not lost with the helper process.
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
"""Ten signs of life that did not come. A node that is taken for lost loses the steps since its last checkpoint at most,
and comes back by the way of any lost node."""


@dataclass
class SupervisorSight:
    """What is known of another node's supervisor."""

    number: int
    """Of its last sign of life."""
    looked: float
    silent: float = 0.0
    """Seconds for which the number has been seen to stay the same."""


class NodeLiveness:
    """One supervisor's own sign of life, and its view of the others."""

    def __init__(self, store: JobStore, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._node, self._clock = store, node, clock
        self._beaten = 0.0
        self._sights: dict[str, SupervisorSight] = {}

    def beat(self) -> None:
        """Show that this supervisor lives, at most once a second."""
        if not self._beaten or self._clock() - self._beaten >= BEAT_SECONDS:
            self._store.number(f"{ALIVE}/{self._node}")
            self._beaten = self._clock()

    def lost(self, node: str, after: float = LOST_SECONDS) -> str:
        """Why a node is lost, empty while it is not: in one sentence. It is after so many seconds of silence."""
        if self._store.has(f"{LOST}/{node}"):
            return f"node {node} is lost"
        sight = self._sights.get(node)
        is_new = sight and self._clock() - sight.looked < BEAT_SECONDS  # the store need not be asked more often
        silent = sight.silent if sight and is_new else self.silence(node)
        return f"node {node} is lost: no sign of life for {silent:.0f} s" if silent > after else ""

    def silence(self, node: str) -> float:
        """Seconds for which a node's supervisor has been seen to show nothing, from the first look on.

        Where this process itself was kept waiting between two looks, that time says nothing of the other, which may
        have waited for the same.
        """
        now, sight = self._clock(), self._sights.get(node)
        number = self._store.count(f"{ALIVE}/{node}")
        if sight and number == sight.number:
            sight.silent += min(now - sight.looked, 2 * BEAT_SECONDS)
            sight.looked = now
        else:
            sight = self._sights[node] = SupervisorSight(number, now)
        return sight.silent


def start(host: str, port: int, node: str) -> int:
    """Start it; the pid of its process, which dies with this one. Call it before any thread is started."""
    return forked.start_helper(__name__, functools.partial(_live, os.getpid(), host, port, node))


def _live(supervisor: int, host: str, port: int, node: str) -> None:
    """The life of the process. A store that is gone ends it: the supervisor finds out by itself."""
    with contextlib.suppress(StoreGone):
        liveness = NodeLiveness(JobStore.connected(host, port, CONNECT_SECONDS), node)
        while True:
            if stacks.state(supervisor) != stacks.STOPPED:
                liveness.beat()
            time.sleep(BEAT_SECONDS)

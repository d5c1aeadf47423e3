"""Pulse: the supervisor of each node shows that it lives, and sees whether another one does.

The launcher may say at once that a node is lost. Without a launcher that sees its nodes, a supervisor that has shown
nothing for a while counts as lost; the ages are by the clock of who looks.
"""

import time
from collections.abc import Callable

from trainer.node.generations import ALIVE, LOST
from trainer.supervisor.job_store import JobStore

BEAT_SECONDS = 1.0
LOST_SECONDS = 30.0
"""Longer than a machine under load keeps a process waiting: a node that is taken for lost loses its work."""


class Pulse:
    """One supervisor's own sign of life, and its view of the others."""

    def __init__(self, store: JobStore, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._node, self._clock = store, node, clock
        self._beaten = 0.0
        self._seen: dict[str, tuple[int, float]] = {}
        """By node: the last number and when it was new."""

    def beat(self) -> None:
        """Show that this supervisor lives, at most once a second."""
        if not self._beaten or self._clock() - self._beaten >= BEAT_SECONDS:
            self._store.number(f"{ALIVE}/{self._node}")
            self._beaten = self._clock()

    def lost(self, node: str) -> str:
        """Why a node is lost, empty while it is not: in one sentence."""
        if self._store.has(f"{LOST}/{node}"):
            return f"node {node} is lost"
        now, (before, since) = self._clock(), self._seen.get(node, (-1, 0.0))
        if before >= 0 and now - since < BEAT_SECONDS:
            return ""
        number = self._store.count(f"{ALIVE}/{node}")
        if number != before:
            self._seen[node] = number, now
            return ""
        age = now - since
        return f"node {node} is lost: no sign of life for {age:.0f} s" if age > LOST_SECONDS else ""

    def silence(self, node: str) -> float:
        """Seconds for which a node's supervisor has shown nothing, counted from the first call that saw it so."""
        now, number = self._clock(), self._store.count(f"{ALIVE}/{node}")
        before, since = self._seen.get(node, (-1, 0.0))
        if number != before:
            self._seen[node] = number, now
            return 0.0
        return now - since

"""Sources: where a node of a training fetches a shard from: the node that keeps it, and else the durable tier.

So a shard leaves the durable tier once, however many nodes need it at the same time. A peer that gave wrong bytes is
not asked again; one that did not answer, or stalled, rests for a while.
"""

import sys
import threading
import time
from collections.abc import Mapping, Sequence

from trainer.data import shards
from trainer.objects.origin import Origin
from trainer.staging.copying import FaultKind, OriginFault

REST_SECONDS = 60.0
"""For how long a peer that did not answer is not asked."""


class Sources:
    """The sources of one node, which learn from what they gave."""

    def __init__(
        self, node: str, peers: Mapping[str, Origin], keepers: Mapping[str, str], last: Sequence[Origin]
    ) -> None:
        """`peers` are the other nodes' servers, by node; `keepers` name the node of each shard; `last` has them all."""
        self._node, self._peers, self._keepers, self._last = node, dict(peers), keepers, last
        self._lock = threading.Lock()
        self._rests = dict[str, float]()

    def of(self, shard: shards.ShardFile, everywhere: bool) -> list[Origin]:
        """The origins of a shard, the best first; its keeper alone, unless it must come from `everywhere`."""
        keeper = self._peer(self._keepers.get(shard.blake3, self._node))
        if keeper is None:
            return list(self._last)
        return [keeper, *self._last] if everywhere else [keeper]

    def learn(self, faults: Sequence[OriginFault]) -> None:
        """Note which peers cannot be trusted; each is named on stderr."""
        with self._lock:
            for fault in faults:
                self._note(str(fault.origin), fault.kind, fault.text)

    def _peer(self, node: str) -> Origin | None:
        """The peer of this name, unless it is this node or cannot be asked now."""
        peer = self._peers.get(node)
        with self._lock:
            return None if peer is None or time.monotonic() < self._rests.get(str(peer), 0.0) else peer

    def _note(self, origin: str, kind: FaultKind, text: str) -> None:
        if kind is FaultKind.MISSING or origin not in map(str, self._peers.values()):
            return
        seconds = float("inf") if kind is FaultKind.WRONG else REST_SECONDS
        rest = "is not asked again" if kind is FaultKind.WRONG else f"rests for {REST_SECONDS:.0f} s"
        self._rests[origin] = time.monotonic() + seconds
        print(f"trainer: the peer {origin} {rest}: {text}", file=sys.stderr, flush=True)

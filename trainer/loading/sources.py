"""Sources: where a node of a training fetches a shard from: the node that keeps it, else the durable tier.

So a shard leaves the durable tier once, even if many nodes need it at the same time. A node that needs a shard now
waits, for a bounded time, while the shard's keeper brings it. A keeper fetches its shards from the durable tier only,
so nodes never wait for each other in a cycle. A peer that gave wrong bytes is never asked again. A peer that did not
answer, or stalled, is not asked for `REST_SECONDS`; after a wait in vain, nobody waits for the peer during that time.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO

from slipway.trainer.base import console
from slipway.trainer.config.operation import Placement
from slipway.trainer.data import shards
from slipway.trainer.objects.origin import Coming, Origin
from slipway.trainer.objects.origins import origin
from slipway.trainer.staging.copying import FaultKind, OriginFault

REST_SECONDS = 60.0
"""A peer that did not answer is not asked for this time."""
STILL_SECONDS = 10.0
"""The longest wait for a shard that does not grow on its keeper."""
WAIT_SECONDS = 30.0
"""The longest wait for a shard."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two requests to a keeper; they double from the first to the longest."""


def origins(placement: Placement, own: str, names: Iterable[str] = ()) -> list[Origin]:
    """The origins of node `own`: the durable tier, and then the placement's further origins.

    `names` are the nodes of the training. Raises ValueError for an address of an unknown scheme.
    """
    others = [name for name in names if name != own and "#" not in name]
    peers = [
        where.format(node=other) for where in placement.origins for other in (others if "{node}" in where else [""])
    ]
    return [origin(url) for url in (placement.durable, *peers)]


class Sources:
    """The sources of one node, with the faults that they have shown."""

    def __init__(
        self, node: str, peers: Mapping[str, Origin], keepers: Mapping[str, str], last: Sequence[Origin]
    ) -> None:
        """`peers`: the other nodes' servers, by node; `keepers`: each shard's node; `last`: origins with all shards."""
        self._node = node
        self._peers = dict(peers)
        self._keepers = keepers
        self._last = last
        self._lock = threading.Lock()
        self._rests = dict[str, float]()
        """By peer, the monotonic time until which it is not asked."""
        self._not_awaited = dict[str, float]()
        """By peer, the monotonic time until which nobody waits for it."""

    def is_own(self, shard: shards.ShardFile) -> bool:
        """Whether this node is the shard's keeper, so that others may wait for it."""
        return self._keepers.get(shard.blake3) == self._node

    def of(self, shard: shards.ShardFile, everywhere: bool) -> list[Origin]:
        """The origins of a shard, the best first: its keeper alone, or with `everywhere`, all origins.

        With `everywhere`, opening the shard waits for a keeper that is about to have it.
        """
        keeper = self._peer(self._keepers.get(shard.blake3, self._node))
        if keeper is None:
            return list(self._last)
        return [self._awaited(keeper), *self._last] if everywhere else [keeper]

    def learn(self, faults: Sequence[OriginFault]) -> None:
        """Note the peers that cannot be trusted, and warn of each on stderr."""
        with self._lock:
            for fault in faults:
                self._note(str(fault.origin), fault.kind, fault.text)

    def _peer(self, node: str) -> Origin | None:
        """The peer of this name, unless it is this node or cannot be asked now."""
        peer = self._peers.get(node)
        with self._lock:
            rests = time.monotonic() < self._rests.get(str(peer), 0.0)
        return None if rests else peer

    def _awaited(self, keeper: Origin) -> Origin:
        """The keeper as an origin that waits for its shards, unless a wait was in vain a short while ago."""
        with self._lock:
            in_vain = time.monotonic() < self._not_awaited.get(str(keeper), 0.0)
        if in_vain:
            return keeper
        return AwaitedOrigin(keeper, lambda message: self._note_wait(str(keeper), message))

    def _note_wait(self, origin: str, message: str) -> None:
        with self._lock:
            self._not_awaited[origin] = time.monotonic() + REST_SECONDS
        line = f"the peer {origin} is not waited for during {REST_SECONDS:.0f} s: {message}"
        console.warn(f"trainer: {line}")

    def _note(self, origin: str, kind: FaultKind, text: str) -> None:
        if kind is FaultKind.MISSING or origin not in map(str, self._peers.values()):
            return
        seconds = float("inf") if kind is FaultKind.WRONG else REST_SECONDS
        rest = "is not asked again" if kind is FaultKind.WRONG else f"rests for {REST_SECONDS:.0f} s"
        self._rests[origin] = time.monotonic() + seconds
        console.warn(f"trainer: the peer {origin} {rest}: {text}")


class AwaitedOrigin:
    """A peer that is asked again and again while it receives the file."""

    def __init__(self, peer: Origin, in_vain: Callable[[str], None]) -> None:
        """`in_vain` is called with an explanation when the file did not come in time."""
        self._peer = peer
        self._in_vain = in_vain

    def __str__(self) -> str:
        return str(self._peer)

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """As `Origin.open`; raises Coming if the file did not come within `WAIT_SECONDS`, or stopped growing."""
        begun = grown = time.monotonic()
        most_bytes = 0
        pause = FIRST_PAUSE
        while True:
            try:
                return self._peer.open(name, offset)
            except Coming as coming:
                now = time.monotonic()
                if coming.bytes > most_bytes:
                    most_bytes = coming.bytes
                    grown = now
                if now - grown > STILL_SECONDS or now - begun > WAIT_SECONDS:
                    self._in_vain(f"{name}: {coming.bytes} bytes after {now - begun:.0f} s")
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

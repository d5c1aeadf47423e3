"""Sources: where a node of a training fetches a shard from: the node that keeps it, and else the durable tier.

So a shard leaves the durable tier once, however many nodes need it at the same time: a node that needs it at once waits
while its keeper brings it, for a bounded time. A keeper fetches its shards without asking anybody, so no nodes wait for
each other. A peer that gave wrong bytes is not asked again; one that did not answer, or stalled, rests for a while, and
one that was waited for in vain is not waited for during that while.
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
"""For how long a peer that did not answer is not asked."""
STILL_SECONDS = 10.0
"""How long a shard is waited for that does not grow on its keeper."""
WAIT_SECONDS = 30.0
"""How long a shard is waited for at most."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two questions to a keeper."""


def origins(placement: Placement, own: str, names: Iterable[str] = ()) -> list[Origin]:
    """Where node `own` fetches shards from: the durable tier, and then the placement's further origins.

    `names` are the nodes of the training. Raises ValueError for an address of an unknown scheme.
    """
    others = [name for name in names if name != own and "#" not in name]
    peers = [
        where.format(node=other) for where in placement.origins for other in (others if "{node}" in where else [""])
    ]
    return [origin(url) for url in (placement.durable, *peers)]


class Sources:
    """The sources of one node, which learn from what they gave."""

    def __init__(
        self, node: str, peers: Mapping[str, Origin], keepers: Mapping[str, str], last: Sequence[Origin]
    ) -> None:
        """`peers` are the other nodes' servers, by node; `keepers` name the node of each shard; `last` has them all."""
        self._node, self._peers, self._keepers, self._last = node, dict(peers), keepers, last
        self._lock = threading.Lock()
        self._rests, self._not_awaited = dict[str, float](), dict[str, float]()

    def is_own(self, shard: shards.ShardFile) -> bool:
        """Whether this node is the shard's keeper: then others may wait for it."""
        return self._keepers.get(shard.blake3) == self._node

    def of(self, shard: shards.ShardFile, everywhere: bool) -> list[Origin]:
        """The origins of a shard, the best first; its keeper alone, unless it must come from `everywhere`.

        With `everywhere`, a keeper that is about to have the shard is waited for.
        """
        keeper = self._peer(self._keepers.get(shard.blake3, self._node))
        if keeper is None:
            return list(self._last)
        return [self._awaited(keeper), *self._last] if everywhere else [keeper]

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

    def _awaited(self, keeper: Origin) -> Origin:
        """The keeper, which is waited for unless that was in vain a short while ago."""
        with self._lock:
            in_vain = time.monotonic() < self._not_awaited.get(str(keeper), 0.0)
        return keeper if in_vain else AwaitedOrigin(keeper, lambda message: self._note_wait(str(keeper), message))

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
    """A peer that is asked again while the file is on its way to it."""

    def __init__(self, peer: Origin, in_vain: Callable[[str], None]) -> None:
        """`in_vain` is called, with what was seen, when the file did not come in time."""
        self._peer, self._in_vain = peer, in_vain

    def __str__(self) -> str:
        return str(self._peer)

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """As `Origin.open`; raises Coming when the file did not come within `WAIT_SECONDS`, or no longer grew."""
        begun = grown = time.monotonic()
        most, pause = 0, FIRST_PAUSE
        while True:
            try:
                return self._peer.open(name, offset)
            except Coming as coming:
                now = time.monotonic()
                if coming.bytes > most:
                    most, grown = coming.bytes, now
                if now - grown > STILL_SECONDS or now - begun > WAIT_SECONDS:
                    self._in_vain(f"{name}: {coming.bytes} bytes after {now - begun:.0f} s")
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

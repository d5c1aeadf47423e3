"""Parts: which shards of a snapshot a node stages when the nodes divide the snapshot instead of each holding all of it.

Rendezvous hashing (Thaler and Ravishankar 1998): each node draws a number for each shard, and the node with the
highest number takes the shard. All nodes compute the same parts without talking, and when a node leaves only its own
shards move. Where the nodes' room counts, a shard goes to the first node in the order of its numbers that has room
(consistent hashing with bounded loads; Mirrokni, Thorup and Zadimoghaddam 2016).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipway.trainer.base import digest, draws
from slipway.trainer.data import shards


@dataclass(frozen=True)
class SnapshotPart:
    """The part that `node` stages when `nodes` divide a snapshot; the order of `nodes` does not matter.

    A shard goes to each of the N nodes with the same probability, independently of the others. So by Bernstein's
    inequality, but for a chance of d, no node gets more of n shards than n/N + sqrt(2 L n/N) + L, L = ln(N/d).
    """

    node: str
    nodes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError(f"nodes: found {', '.join(self.nodes)}, expected each node once")
        if self.node not in self.nodes:
            raise ValueError(f"node: found {self.node!r}, expected one of {', '.join(self.nodes)}")

    @staticmethod
    def numbered(index: int, of: int) -> "SnapshotPart":
        """Part `index` of `of` parts, for nodes that have numbers and no names."""
        return SnapshotPart(str(index), tuple(str(number) for number in range(of)))

    def of(self, every: Sequence[shards.ShardFile]) -> list[shards.ShardFile]:
        """The shards of this part, in their order."""
        if len(self.nodes) == 1 or not every:
            return list(every)
        names = sorted(self.nodes)
        takers = _numbers(every, names).argmax(axis=1)
        own_index = names.index(self.node)
        return [shard for shard, taker in zip(every, takers.tolist(), strict=True) if taker == own_index]


WHOLE_SNAPSHOT = SnapshotPart("", ("",))
"""Every shard: each node holds the whole snapshot."""


def divide(every: Sequence[shards.ShardFile], rooms: Mapping[str, int]) -> dict[str, str] | None:
    """The node that keeps each shard, by BLAKE3, if no node may keep more bytes than its room.

    None if a shard fits no node. With enough room it is the division of `SnapshotPart`.
    """
    names = sorted(rooms)
    keepers = dict[str, str]()
    free_bytes = dict(rooms)
    order = _numbers(every, names).argsort(axis=1)[:, ::-1].tolist() if every else []
    # The largest first: they find room while there is some.
    for shard, ranking in sorted(zip(every, order, strict=True), key=lambda pair: (-pair[0].bytes, pair[0].blake3)):
        if shard.blake3 in keepers:
            continue
        keeper = next((names[index] for index in ranking if free_bytes[names[index]] >= shard.bytes), None)
        if keeper is None:
            return None
        keepers[shard.blake3] = keeper
        free_bytes[keeper] -= shard.bytes
    return keepers


def _numbers(every: Sequence[shards.ShardFile], names: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The number that each node draws for each shard: [shards, nodes]."""
    drawn = np.array([int(shard.blake3[:16], 16) for shard in every], np.uint64)
    keys = np.array([int(digest.of_bytes(name.encode())[:16], 16) for name in names], np.uint64)
    return draws.mix(drawn[:, None] ^ keys[None, :])

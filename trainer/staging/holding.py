"""Holding: the parts of a snapshot that each node of a training holds, and when.

A node *keeps* some shards for the whole training, and has a *window* of the shards that the coming steps read. There
are three ways. Whole: it keeps all shards, and the window is empty. Parts: the nodes divide the shards, and the window
brings the shards of other nodes. Window: it keeps none, and the window moves ahead of the steps. Every rank computes
the same holding from the same sizes; so does a plan, before there are any nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slipway.trainer.data import shards
from slipway.trainer.record.causes import UnfitNode
from slipway.trainer.staging import parts

Staging = Literal["auto", "whole", "streaming", "parts", "window", "before"]
"""The field `placement.staging`; "before" is an earlier name of "whole"."""
Kind = Literal["whole", "streaming", "parts", "window"]
SHARE = 0.9
"""The share of the room on an NVMe that shards may take by default; the rest is for checkpoints."""


@dataclass(frozen=True)
class SnapshotNeed:
    """The bytes of its snapshot that a training reads, for every way of holding."""

    total: int
    """All shards of the snapshot."""
    divided: int
    """The shards of the training split, which nodes may divide."""
    pinned: int
    """The shards that validation reads again and again: every node keeps them."""
    window: int
    """The most that the shards of the steps in progress take."""
    largest: int
    """The largest shard."""

    @property
    def least(self) -> int:
        """The room without which no way works."""
        return self.pinned + self.window


@dataclass(frozen=True)
class Holding:
    """The way in which each node of a training holds the snapshot."""

    kind: Kind
    why: str
    """The sizes that led to it, in a sentence."""
    keepers: Mapping[str, str]
    """The node that keeps each shard of the training split, by BLAKE3; empty for a window, and if all keep all."""

    @property
    def moves(self) -> bool:
        """Whether the nodes hold less than the whole."""
        return self.kind in ("parts", "window")


def choose(
    staging: Staging, need: SnapshotNeed, rooms: Mapping[str, int], divided: Sequence[shards.ShardFile] = ()
) -> Holding:
    """How nodes with these rooms (bytes for shards, by node) hold a snapshot.

    `divided` are the shards of the training split; without them the sizes alone decide whether parts fit. auto chooses
    the first of whole, parts and window that fits. Raises UnfitNode, with the sizes, if the chosen way does not fit.
    """
    smallest = min(rooms, key=lambda node: (rooms[node], node))
    sizes = f"the snapshot has {size(need.total)}, and the least room is {size(rooms[smallest])} (NVMe of {smallest})"
    staging = "whole" if staging == "before" else staging
    if staging in ("auto", "whole", "streaming") and need.total <= rooms[smallest]:
        return Holding("streaming" if staging == "streaming" else "whole", sizes, {})
    if staging in ("whole", "streaming"):
        raise UnfitNode(
            f"placement.staging: found {staging}, but {sizes}; expected parts, window or auto, or more room", smallest
        )
    if need.least > rooms[smallest]:
        raise UnfitNode(_too_small(staging, need, smallest, rooms[smallest]), smallest)
    if staging in ("auto", "parts") and len(rooms) > 1:
        spare = {node: room - need.least for node, room in rooms.items()}
        keepers = parts.divide(divided, spare) if sum(spare.values()) >= need.divided else None
        if keepers is not None:
            return Holding("parts", f"{sizes}; {len(rooms)} nodes together have room for it", keepers)
    if staging == "parts":
        raise UnfitNode(
            f"placement.staging: found parts, but {size(need.divided)} of shards do not fit into the "
            f"{size(sum(rooms.values()))} of {len(rooms)} nodes together with {size(need.least)} on each for what its "
            "steps read; expected window or auto, more nodes, or more room"
        )
    return Holding("window", sizes, {})


def size(count: int) -> str:
    """Bytes as people read them: "1.2 GB"."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1000:.1f} kB"


def _too_small(staging: str, need: SnapshotNeed, node: str, room: int) -> str:
    if room < need.largest:
        expected = f"the largest shard alone has {size(need.largest)}"
    else:
        expected = f"the steps in progress read up to {size(need.window)} of shards, validation {size(need.pinned)}"
    return (
        f"placement.staging: found {staging} with {size(max(0, room))} of room on the NVMe of {node}, expected "
        f"{size(need.least)} or more: {expected}; give it more room (placement.nvme_gigabytes), a lower "
        "run.shuffle_shards, or a snapshot of smaller shards"
    )

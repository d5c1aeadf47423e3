"""The ring of a training's nodes: the ranks of each node, and the node that keeps a copy of their files.

A checkpoint on the NVMe of several nodes is divided: each node has the files of its own ranks, and a copy of the files
of the node before it in the ring; the first node follows the last. So one node can be lost with its disk, and every
byte is still there. A record lists the nodes of a commit:

    spread/<commit>.json    {"format": "slipway.spread/1", "commit": ..., "nodes": [{"name": ..., "ranks": [0]}, ...]}

The record is made before the commit, and never changes. A commit without one is whole on one node.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.record import files

FORMAT = "slipway.spread/1"


@dataclass(frozen=True)
class RingNode:
    """One node of a training."""

    name: str
    url: str
    """The URL of the server that gives its files to the other nodes."""
    ranks: tuple[int, ...]
    """The first one acts for the node."""


@dataclass(frozen=True)
class NodeRing:
    """The nodes of a training in their order, and this rank's own among them."""

    nodes: tuple[RingNode, ...] = ()
    """Empty if all ranks are on one node, or if the nodes cannot keep copies for each other."""
    own: int = 0
    """The index of this rank's node."""
    unusable: str = ""
    """Why the nodes cannot keep copies for each other; empty if they can."""

    @property
    def spreads(self) -> bool:
        """Whether a checkpoint on the NVMe is spread over several nodes."""
        return len(self.nodes) > 1

    def __str__(self) -> str:
        if self.unusable:
            return self.unusable
        return f"copies between {len(self.nodes)} nodes" if self.spreads else "one node"

    @property
    def node(self) -> RingNode:
        return self.nodes[self.own]

    @property
    def before(self) -> RingNode:
        """The node of whose files this node keeps a copy."""
        return self.nodes[self.own - 1]

    def encode(self) -> dict[str, Any]:
        """The JSON value that `decode` reads."""
        return {"nodes": [asdict(node) for node in self.nodes], "own": self.own}


ONE_NODE = NodeRing()


def decode(value: dict[str, Any]) -> NodeRing:
    """The ring of a JSON value from `encode`."""
    nodes = (RingNode(node["name"], node["url"], tuple(node["ranks"])) for node in value["nodes"])
    return NodeRing(tuple(nodes), value["own"])


@dataclass(frozen=True)
class SpreadNode:
    """A node, and the ranks whose files it has written itself."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SpreadRecord:
    """The nodes of a commit, in the order of their ring."""

    commit: str
    nodes: tuple[SpreadNode, ...]

    def missing(self, nodes: Collection[str]) -> list[SpreadNode]:
        """Its nodes that are not among these."""
        return [node for node in self.nodes if node.name not in nodes]


def record_spread(store: Path, commit: str, ring: NodeRing) -> None:
    """Record the nodes of a commit. Raises OSError."""
    nodes = tuple(SpreadNode(node.name, node.ranks) for node in ring.nodes)
    codec.create_only(files.named(store, files.SPREAD, commit), SpreadRecord(commit, nodes), FORMAT)


def read_spread(store: Path, commit: str) -> SpreadRecord | None:
    """The record of a commit; None if it is whole on one node. Raises OSError, and UndecodableRecord."""
    return codec.read_if_there(files.named(store, files.SPREAD, commit), SpreadRecord, FORMAT)

"""The ring of a training's nodes: on which node each rank runs, and which node keeps a copy of whose part.

A checkpoint on the NVMe of several nodes is there in parts: each node has the files of its own ranks, and a copy of
those of the node before it in the ring. So one node can be lost with its disk, and every byte is still there. A record
says which nodes have the files of a commit:

    spread/<commit>.json    {"format": "slipway.spread/1", "commit": ..., "nodes": [{"name": ..., "ranks": [0]}, ...]}

Node k has the files of its own ranks, and a copy of those of the node before it; the first follows the last. The record
is made before the commit, and never changed. A commit without one is whole on one node.
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
    """Of the server that gives its files to the other nodes."""
    ranks: tuple[int, ...]
    """The first of them speaks for the node."""


@dataclass(frozen=True)
class NodeRing:
    """The nodes of a training in their order, and this rank's own among them."""

    nodes: tuple[RingNode, ...] = ()
    """None where all ranks are on one node, and where the nodes cannot keep copies for each other."""
    own: int = 0
    unusable: str = ""
    """Why the nodes cannot keep copies for each other; empty where they can."""

    @property
    def spreads(self) -> bool:
        """Whether a checkpoint on the NVMe is in parts on several nodes."""
        return len(self.nodes) > 1

    def __str__(self) -> str:
        return self.unusable or (f"copies between {len(self.nodes)} nodes" if self.spreads else "one node")

    @property
    def node(self) -> RingNode:
        return self.nodes[self.own]

    @property
    def before(self) -> RingNode:
        """The node whose files this node keeps a copy of."""
        return self.nodes[self.own - 1]

    def encode(self) -> dict[str, Any]:
        """As JSON has it; `decode` reads it."""
        return {"nodes": [asdict(node) for node in self.nodes], "own": self.own}


ONE_NODE = NodeRing()


def decode(value: dict[str, Any]) -> NodeRing:
    """A ring from its JSON."""
    nodes = (RingNode(node["name"], node["url"], tuple(node["ranks"])) for node in value["nodes"])
    return NodeRing(tuple(nodes), value["own"])


@dataclass(frozen=True)
class SpreadNode:
    """A node, and the ranks whose files it wrote itself."""

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
    """Put on record which nodes have the files of a commit. Raises OSError."""
    nodes = tuple(SpreadNode(node.name, node.ranks) for node in ring.nodes)
    codec.create_only(files.named(store, files.SPREAD, commit), SpreadRecord(commit, nodes), FORMAT)


def read_spread(store: Path, commit: str) -> SpreadRecord | None:
    """The record of a commit; None when it is whole on one node. Raises OSError, and UndecodableRecord."""
    return codec.read_if_there(files.named(store, files.SPREAD, commit), SpreadRecord, FORMAT)

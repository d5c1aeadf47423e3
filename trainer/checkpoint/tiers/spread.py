"""The spread of a commit on the NVMe: the record of the nodes that have its files.

    spread/<commit>.json    {"format": "slipway.spread/1", "commit": ..., "nodes": [{"name": ..., "ranks": [0]}, ...]}

Node k has the files of its own ranks, and a copy of those of the node before it; the first follows the last. The record
is made before the commit, and never changed. A commit without one is whole on one node.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.checkpoint.tiers.ring import NodeRing
from slipway.trainer.record import files

FORMAT = "slipway.spread/1"


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


def record(store: Path, commit: str, ring: NodeRing) -> None:
    """Put on record which nodes have the files of a commit. Raises OSError."""
    nodes = tuple(SpreadNode(node.name, node.ranks) for node in ring.nodes)
    codec.create_only(files.named(store, files.SPREAD, commit), SpreadRecord(commit, nodes), FORMAT)


def read(store: Path, commit: str) -> SpreadRecord | None:
    """The record of a commit; None when it is whole on one node. Raises OSError, and UndecodableRecord."""
    return codec.read_if_there(files.named(store, files.SPREAD, commit), SpreadRecord, FORMAT)

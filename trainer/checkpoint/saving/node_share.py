"""A node's share of a checkpoint on the NVMe of several nodes: its own files, and copies of its neighbour's.

The writer of the node's first rank makes it (`keep`), and rank 0's writer commits the checkpoint once every node has:

1. each rank's writer writes its files into the hidden folder of its own node, and reports them;
2. the writer of a node's first rank copies the files of the node before it in the ring from that node's server, each
   verified against its report;
3. rank 0's writer, which has all reports, announces the manifest; every node brings it and shows its folder;
4. when all nodes have answered, rank 0's writer records where the files are, and then the commit.

So every byte of a commit is on two nodes before it counts. A node that is full, or whose server stalls or gives other
bytes, fails this save, which names it.
"""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile, decode
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.verification import verified_manifest
from slipway.trainer.checkpoint.saving import parts
from slipway.trainer.checkpoint.tiers import fetching
from slipway.trainer.checkpoint.tiers.ring import NodeRing, RingNode
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.objects.origin import Origin
from slipway.trainer.objects.origins import origin

AT_ONCE = 4
"""Files that are copied at a time."""


@dataclass(frozen=True)
class NodeShare:
    """One node's share of a checkpoint that is being saved."""

    ring: NodeRing
    store: Path
    folder: str
    """The checkpoint's, relative to the NVMe folder of every node."""
    hidden: Path
    """The folder on this node in which the files are put together."""
    visible: Path
    seconds: float
    """How long to wait for others at most."""

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    def keep(self) -> None:
        """Complete this node's share, and answer rank 0's writer; of a node that is not rank 0's. Raises OSError."""
        try:
            self.copy_neighbours()
            self.show(self._manifest())
            parts.report_node(self.store, self.name, self.ring.own, {"shown": True})
        except parts.GivenUp:
            raise
        except OSError as error:
            # Before its files are removed: whoever then misses one learns why.
            parts.report_node(self.store, self.name, self.ring.own, {"error": str(error)})
            raise
        finally:
            shutil.rmtree(self.hidden, ignore_errors=True)

    def copy_neighbours(self) -> None:
        """Copy the files of the node before this one. Raises OSError."""
        before = self.ring.before
        files = self._reported(before)
        source = origin(before.url)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: self._fetch(source, before, name, files[name]), files))

    def show(self, manifest: bytes) -> None:
        """Make this node's folder, with its own files and its neighbour's, visible. Raises OSError."""
        files = {**self._reported(self.ring.node), **self._reported(self.ring.before)}
        files[PROGRESS] = decode(manifest).files[PROGRESS]
        publication.show_share(self.hidden, self.visible, manifest, files)

    def faults(self) -> list[str]:
        """Why the shares of the other nodes are not whole, once all have answered."""
        others = [number for number in range(len(self.ring.nodes)) if number != self.ring.own]
        return self._errors(others, parts.gather_nodes(self.store, self.name, others, self.seconds))

    def why_missing(self) -> list[str]:
        """What the node before this one has said of its own failure, if it has."""
        before = (self.ring.own - 1) % len(self.ring.nodes)
        return self._errors([before], parts.said_by_nodes(self.store, self.name, [before]))

    def _errors(self, nodes: Sequence[int], answers: Sequence[parts.SavedPart]) -> list[str]:
        named = zip(nodes, answers, strict=True)
        return [
            f"node {self.ring.nodes[number].name}: {answer['error']}" for number, answer in named if "error" in answer
        ]

    def _manifest(self) -> bytes:
        """The manifest, brought from rank 0's node together with progress.json. Raises OSError."""
        sha256 = parts.announced(self.store, self.name, self.ring.node.ranks[0], self.seconds)
        first = next(node for node in self.ring.nodes if 0 in node.ranks)
        source = origin(first.url)
        try:
            data = fetching.small(source, self._names(MANIFEST)[0])
            files = verified_manifest(data, sha256, f"{source}/{MANIFEST}").files
        except (TierUnavailable, DamagedCheckpoint) as error:
            raise OSError(f"the manifest of node {first.name}: {error}") from None
        self._fetch(source, first, PROGRESS, files[PROGRESS])
        return data

    def _reported(self, node: RingNode) -> dict[str, CheckpointFile]:
        """The files that the ranks of a node have written. Raises OSError."""
        saved_parts = parts.gather_for(self.store, self.name, node.ranks, self.ring.node.ranks[0], self.seconds)
        for rank, part in zip(node.ranks, saved_parts, strict=True):
            if "error" in part:
                raise OSError(f"rank {rank}: {part['error']}")
        return {name: CheckpointFile(**file) for part in saved_parts for name, file in part["files"].items()}

    def _fetch(self, source: Origin, node: RingNode, name: str, expected: CheckpointFile) -> None:
        try:
            fetching.file(source, self._names(name), expected, self.hidden / name)
        except (TierUnavailable, DamagedCheckpoint) as error:
            raise OSError(f"the copy of node {node.name}'s files: {error}") from None

    def _names(self, name: str) -> list[str]:
        """Where another node has a file: in its hidden folder until it shows it."""
        above, _, last = self.folder.rpartition("/")
        return [f"{above}/.{last}.partial/{name}", f"{self.folder}/{name}"]

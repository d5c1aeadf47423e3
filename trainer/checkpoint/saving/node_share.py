"""A node's share of a checkpoint on the NVMe of several nodes: its own files, and copies of its neighbour's.

The writer of the node's first rank completes the share (`keep`). Rank 0's writer commits the checkpoint when all shares
are complete:

1. each rank's writer writes its files into the hidden folder of its own node, and reports them;
2. the writer of a node's first rank copies the files of the node before it in the ring from that node's server, each
   verified against its report;
3. rank 0's writer, which has all reports, announces the manifest; every node fetches it and makes its folder visible;
4. when all nodes have answered, rank 0's writer records the nodes of the files, and then the commit.

So every byte of a commit is on two nodes before it counts. If a node is full, or its server stalls or gives other
bytes, the save fails with the name of the node.
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
    """The checkpoint's folder, relative to the NVMe folder of every node."""
    hidden: Path
    """The folder on this node that collects the files until they are published."""
    visible: Path
    seconds: float
    """The longest wait for other nodes."""

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    def keep(self) -> None:
        """Complete the share and answer rank 0's writer; on every node but rank 0's. Raises OSError."""
        try:
            self.copy_neighbors()
            self.show(self._manifest())
            parts.report_node(self.store, self.name, self.ring.own, {"shown": True})
        except parts.GivenUp:
            raise
        except OSError as error:
            # Report before the files are removed, so that a node that misses one can name the reason.
            parts.report_node(self.store, self.name, self.ring.own, {"error": str(error)})
            raise
        finally:
            shutil.rmtree(self.hidden, ignore_errors=True)

    def copy_neighbors(self) -> None:
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
        """Wait for the answers of the other nodes; returns why their shares are not complete."""
        others = [number for number in range(len(self.ring.nodes)) if number != self.ring.own]
        return self._errors(others, parts.gather_nodes(self.store, self.name, others, self.seconds))

    def why_missing(self) -> list[str]:
        """The failure that the node before this one has reported, if any."""
        before = (self.ring.own - 1) % len(self.ring.nodes)
        return self._errors([before], parts.said_by_nodes(self.store, self.name, [before]))

    def _errors(self, nodes: Sequence[int], answers: Sequence[parts.SavedPart]) -> list[str]:
        named = zip(nodes, answers, strict=True)
        return [
            f"node {self.ring.nodes[number].name}: {answer['error']}" for number, answer in named if "error" in answer
        ]

    def _manifest(self) -> bytes:
        """The manifest, fetched from rank 0's node together with progress.json. Raises OSError."""
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
        """The paths of a file on another node: in its hidden folder, and later in the visible one."""
        above, _, last = self.folder.rpartition("/")
        return [f"{above}/.{last}.partial/{name}", f"{self.folder}/{name}"]

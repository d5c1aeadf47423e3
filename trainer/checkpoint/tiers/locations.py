"""Locations: the folders in which the ranks of a training can read a commit, the fastest tier first.

On the NVMe a checkpoint is whole on one node, or spread over several. From the backup, the last choice, it is fetched
to a hidden folder on the durable tier and verified on its way.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from slipway.trainer.base import file_system
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import copying, replicas, ring
from slipway.trainer.checkpoint.tiers.node_copies import NodeCopies
from slipway.trainer.checkpoint.tiers.node_servers import alone
from slipway.trainer.checkpoint.tiers.ring import ONE_NODE, NodeRing, SpreadRecord
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TierUnavailable
from slipway.trainer.config.operation import Placement
from slipway.trainer.node.world import World
from slipway.trainer.record.fence import Commit, Token
from slipway.trainer.record.incarnation import TRIED_VARIABLE


def nvme_folder(placement: Placement) -> Path:
    """This node's NVMe folder."""
    return Path(placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))


def tried(placement: Placement, world: World) -> dict[str, str]:
    """The capabilities of the tiers' file systems; one rank tests each file system for all ranks that share it.

    Empty on a node where an earlier generation of this job has tested them. Raises OSError for a file system that
    cannot hold a training.
    """
    if os.environ.get(TRIED_VARIABLE):
        return {}
    folders: dict[str, Path] = {}
    if world.is_rank_zero:
        folders |= {"store": Path(placement.store), DURABLE: Path(placement.durable)}
    if world.local_rank == 0:
        folders[NVME] = nvme_folder(placement)
        # Only the NVMe folder is made: if the durable tier's does not exist, its disk is not mounted.
        folders[NVME].mkdir(parents=True, exist_ok=True)
    return {tier: file_system.require(folder, tier) for tier, folder in folders.items()}


class CommitPlace(NamedTuple):
    """A place of a commit, or why it cannot be read there."""

    tier: str
    folder: Path
    away: str = ""
    """Why the place cannot be read now."""
    damage: str = ""
    """The damage of its copy."""
    copies: NodeCopies | None = None
    """Set if the commit may be spread over several nodes: reads and completes it."""
    lost: str = ""
    """Why a wait would be in vain: the training does not have the commit's nodes now."""


class CheckpointPlaces:
    """The places of a training's commits; all ranks call it at the same time."""

    def __init__(
        self,
        placement: Placement,
        world: World,
        token: Token,
        ring: NodeRing = ONE_NODE,
        fetched: Path | None = None,
    ) -> None:
        """`fetched`: the folder for a checkpoint from the backup; by default, that of the training's checkpoints."""
        self._fetched = fetched
        self._placement = placement
        self._world = world
        self._token = token
        self._ring = ring
        self._store = Path(placement.store)
        self._durable = Path(placement.durable)

    def __call__(self, commit: Commit) -> Iterator[CommitPlace]:
        """The places of a commit; each is looked up only when it is needed."""
        tiers, fault = self._holders(commit)
        if fault:
            yield CommitPlace(DURABLE, self._store, away=fault)
        for tier in tiers:
            if tier == DURABLE:
                yield CommitPlace(DURABLE, self._durable / commit.folder)
            elif tier == BACKUP:
                yield self._fetch_from_backup(commit)
            else:
                yield self._on_nvme(commit, DURABLE in tiers)

    def _holders(self, commit: Commit) -> tuple[tuple[str, ...], str]:
        """The tiers that hold a commit, or why their record cannot be read; rank 0 reads it."""
        answer: tuple[tuple[str, ...], str] = ((), "")
        if self._world.is_rank_zero:
            try:
                answer = replicas.holders(self._store, [commit])[commit.name], ""
            except OSError as error:
                answer = (), f"{self._store}: {error.strerror or error}"
        return self._world.broadcast(answer)

    def _on_nvme(self, commit: Commit, lasts: bool) -> CommitPlace:
        """The NVMe of the node that has the whole commit, or of the nodes over which it is spread."""
        folder = nvme_folder(self._placement) / commit.folder
        has_manifest = False
        record = None
        fault = ""
        try:
            if self._world.is_rank_zero:
                record = ring.read_spread(self._store, commit.name)
            has_manifest = (folder / MANIFEST).is_file()
            if has_manifest and lasts:
                with contextlib.suppress(OSError):  # the keys of its files mostly open the copy all the same
                    copying.bring_keys(self._durable / commit.folder, folder)
        except (OSError, ValueError) as error:
            fault = f"{folder}: {getattr(error, 'strerror', None) or error}"
        gathered = self._world.all_gather((has_manifest, record, fault))
        faults = [answer[2] for answer in gathered if answer[2]]
        if faults:
            return CommitPlace(NVME, folder, away=faults[0])
        record = gathered[0][1]
        if record is None and all(answer[0] for answer in gathered):
            return CommitPlace(NVME, folder)
        if not any(answer[0] for answer in gathered):
            return CommitPlace(NVME, folder, lost=f"on the NVMe of {_nodes(record)}, which this training has not now")
        if self._ring.unusable:
            why = f"nodes that cannot give each other its files: {self._ring.unusable}"
            return CommitPlace(NVME, folder, lost=f"on the NVMe of {why}")
        nodes = self._ring if self._ring.spreads else alone(self._world)
        durable = self._durable / commit.folder if lasts else None
        return CommitPlace(NVME, folder, copies=NodeCopies(commit, folder, nodes, record, durable))

    def _fetch_from_backup(self, commit: Commit) -> CommitPlace:
        """The checkpoint, fetched from the backup; the next restore removes it (`publication.remove_unpublished`)."""
        folder = self._durable / commit.folder
        into = (self._fetched or folder.parent) / f".{folder.name}.{self._token}.fetched"
        damage = fault = ""
        if self._world.is_rank_zero:
            try:
                copying.fetch(copying.tier_at(self._placement.backup), commit.folder, commit.manifest, into)
            except DamagedCheckpoint as error:
                damage = str(error)
            except (TierUnavailable, OSError, ValueError) as error:
                fault = str(error)
        damage, fault = self._world.broadcast((damage, fault))
        return CommitPlace(BACKUP, into, fault, damage)


def _nodes(record: SpreadRecord | None) -> str:
    """The nodes of a commit, as far as they are on record."""
    if record is None:
        return "another node"
    return f"the nodes {', '.join(node.name for node in record.nodes)}"

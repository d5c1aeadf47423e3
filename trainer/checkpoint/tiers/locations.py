"""Locations: the folders in which the ranks of a training can read a commit, the fastest tier first.

On the NVMe a checkpoint is whole on one node, or several nodes have it together. From the backup, the last choice, the
checkpoint is fetched to a hidden folder on the durable tier and verified on its way.
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
    """What the file systems of the tiers can do, tried by one rank for all that share it.

    Nothing is tried again on a node where an earlier generation of this job has. Raises OSError for one that cannot
    hold a training.
    """
    if os.environ.get(TRIED_VARIABLE):
        return {}
    folders: dict[str, Path] = {}
    if world.is_rank_zero:
        folders |= {"store": Path(placement.store), DURABLE: Path(placement.durable)}
    if world.local_rank == 0:
        folders[NVME] = nvme_folder(placement)
        # Only here: a durable tier that is not there is not mounted, and must not be made.
        folders[NVME].mkdir(parents=True, exist_ok=True)
    return {tier: file_system.require(folder, tier) for tier, folder in folders.items()}


class CommitPlace(NamedTuple):
    """Where a commit can be read; with a fault, why it cannot, or what is wrong with it."""

    tier: str
    folder: Path
    away: str = ""
    damage: str = ""
    copies: NodeCopies | None = None
    """Where no node need have all of it: how it is put together."""
    lost: str = ""
    """Why it cannot be read and need not be waited for: its nodes are not there now."""


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
        """`fetched`: where a checkpoint of the backup is brought, by default beside the training's other ones."""
        self._fetched = fetched
        self._placement, self._world, self._token, self._ring = placement, world, token, ring
        self._store, self._durable = Path(placement.store), Path(placement.durable)

    def __call__(self, commit: Commit) -> Iterator[CommitPlace]:
        """The places of a commit; the next is looked for only when it is needed."""
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
        """The tiers that hold a commit, as rank 0 reads them, or why that cannot be read."""
        answer: tuple[tuple[str, ...], str] = ((), "")
        if self._world.is_rank_zero:
            try:
                answer = replicas.holders(self._store, [commit])[commit.name], ""
            except OSError as error:
                answer = (), f"{self._store}: {error.strerror or error}"
        return self._world.broadcast(answer)

    def _on_nvme(self, commit: Commit, lasts: bool) -> CommitPlace:
        """The NVMe: of the one node that has all of it, or of the nodes that have it together."""
        folder = nvme_folder(self._placement) / commit.folder
        there, record, fault = False, None, ""
        try:
            if self._world.is_rank_zero:
                record = ring.read_spread(self._store, commit.name)
            there = (folder / MANIFEST).is_file()
            if there and lasts:
                with contextlib.suppress(OSError):  # what is there opens with the keys of its files, as a rule
                    copying.bring_keys(self._durable / commit.folder, folder)
        except (OSError, ValueError) as error:
            fault = f"{folder}: {getattr(error, 'strerror', None) or error}"
        gathered = self._world.all_gather((there, record, fault))
        if faults := [answer[2] for answer in gathered if answer[2]]:
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
        """The checkpoint, brought from the backup; `publication.remove_unpublished` removes it at the next restore."""
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
    return f"the nodes {', '.join(node.name for node in record.nodes)}" if record else "another node"

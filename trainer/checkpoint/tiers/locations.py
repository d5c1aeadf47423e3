"""Locations: the folders in which the ranks of a training can read a commit, the fastest tier first.

The NVMe is used only where every rank finds the checkpoint on its own node. From the backup, the last choice, the
checkpoint is fetched to a hidden folder on the durable tier and verified on its way.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainer.checkpoint.disk.manifest import MANIFEST
from trainer.checkpoint.disk.reading import DamagedCheckpoint
from trainer.checkpoint.tiers import copying, replicas
from trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TierUnavailable
from trainer.config.operation import Placement
from trainer.node.world import World
from trainer.record.fence import Commit, Token


def nvme_folder(placement: Placement) -> Path:
    """This node's NVMe folder."""
    return Path(placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))


class CommitPlace(NamedTuple):
    """Where a commit can be read; with a fault, why it cannot, or what is wrong with it."""

    tier: str
    folder: Path
    away: str = ""
    damage: str = ""


class CheckpointPlaces:
    """The places of a training's commits; all ranks call it at the same time."""

    def __init__(self, placement: Placement, world: World, token: Token) -> None:
        self._placement, self._world, self._token = placement, world, token
        self._store, self._durable = Path(placement.store), Path(placement.durable)

    def __call__(self, commit: Commit) -> Iterator[CommitPlace]:
        """The places of a commit; the next is looked for only when it is needed."""
        held, fault = self._holders(commit)
        if fault:
            yield CommitPlace(DURABLE, self._store, away=fault)
        for tier in held:
            if tier == DURABLE:
                yield CommitPlace(DURABLE, self._durable / commit.folder)
            elif tier == BACKUP:
                yield self._fetch_from_backup(commit)
            else:
                yield from self._on_nvme(commit)

    def _holders(self, commit: Commit) -> tuple[tuple[str, ...], str]:
        """The tiers that hold a commit, as rank 0 reads them, or why that cannot be read."""
        told: tuple[tuple[str, ...], str] = ((), "")
        if self._world.leads:
            try:
                told = replicas.holders(self._store, [commit])[commit.name], ""
            except OSError as error:
                told = (), f"{self._store}: {error.strerror or error}"
        return self._world.from_leader(told)

    def _on_nvme(self, commit: Commit) -> Iterator[CommitPlace]:
        """The folder on the NVMe, where every rank finds the checkpoint on its own node."""
        folder = nvme_folder(self._placement) / commit.folder
        there, fault = False, ""
        try:
            (folder / MANIFEST).stat()
            there = True
        except (FileNotFoundError, NotADirectoryError):
            pass  # on a node that this training does not have now
        except OSError as error:
            fault = f"{folder}: {error.strerror}"
        told = self._world.gather((there, fault))
        if faults := [each[1] for each in told if each[1]]:
            yield CommitPlace(NVME, folder, away=faults[0])
        elif all(each[0] for each in told):
            yield CommitPlace(NVME, folder)

    def _fetch_from_backup(self, commit: Commit) -> CommitPlace:
        """The checkpoint, brought from the backup; `publication.remove_unpublished` removes it at the next restore."""
        folder = self._durable / commit.folder
        into = folder.with_name(f".{folder.name}.{self._token}.fetched")
        damage = fault = ""
        if self._world.leads:
            try:
                copying.fetch(copying.tier_at(self._placement.backup), commit.folder, commit.manifest, into)
            except DamagedCheckpoint as error:
                damage = str(error)
            except (TierUnavailable, OSError, ValueError) as error:
                fault = str(error)
        damage, fault = self._world.from_leader((damage, fault))
        return CommitPlace(BACKUP, into, fault, damage)

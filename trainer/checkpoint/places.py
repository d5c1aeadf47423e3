"""Places: the folders in which a commit can be read here, the fastest tier first.

The NVMe counts where every rank finds the checkpoint whole on its own node, else it is passed over. From the backup a
checkpoint is fetched to a hidden folder on the durable tier, verified on its way, and only when no other will do.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from trainer.checkpoint import format, replicas, tiers
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.interval import BACKUP, DURABLE
from trainer.fence import Commit
from trainer.operation import Placement
from trainer.world import World


def nvme(placement: Placement) -> Path:
    """This node's NVMe folder."""
    return Path(placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))


class Places:
    """Where a training's commits are; all ranks ask at once."""

    def __init__(self, placement: Placement, world: World) -> None:
        self._placement, self._world = placement, world
        self._store, self._durable = Path(placement.store), Path(placement.durable)

    def __call__(self, commit: Commit) -> Iterator[Path]:
        """The folders of a commit, each looked for when it is asked for. Raises tiers.Unavailable, and Damaged."""
        held = replicas.holders(self._store, [commit])[commit.name] if self._world.leads else ()
        for tier in self._world.from_leader(held):
            if tier == DURABLE:
                yield self._durable / commit.folder
            elif tier == BACKUP:
                yield self._fetched(commit)
            elif all(self._world.gather((nvme(self._placement) / commit.folder / format.MANIFEST).exists())):
                yield nvme(self._placement) / commit.folder

    def _fetched(self, commit: Commit) -> Path:
        """The checkpoint, brought from the backup; `format.sweep` removes it at the next restore."""
        folder = self._durable / commit.folder
        into, fault = folder.with_name(f".{folder.name}.fetched"), None
        if self._world.leads:
            try:
                tiers.fetch(tiers.tier(self._placement.backup), commit.folder, commit.manifest, into)
            except (Damaged, tiers.Unavailable, OSError, ValueError) as error:
                fault = (isinstance(error, Damaged), str(error))
        if fault := self._world.from_leader(fault):
            damaged, reason = fault
            raise Damaged(reason) if damaged else tiers.Unavailable(reason)
        return into

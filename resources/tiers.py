"""The storage tiers: where durable things lie, and each node's NVMe folder."""

from pathlib import Path

import dagster as dg
from pydantic import Field


class Tiers(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Paths of the tiers. A durable tier is a shared file system: CephFS, Lustre, NFS, or a local folder."""

    durable: str = Field(description="Folder of the durable tier: snapshots, shards, trainings, checkpoints")
    nvme: str = Field(description="A node's own fast disk; {node} stands for the node's name")

    @property
    def durable_path(self) -> Path:
        return Path(self.durable)

    def nvme_path(self, node: str) -> Path:
        """The NVMe folder of one node, as seen from here."""
        return Path(self.nvme.format(node=node))

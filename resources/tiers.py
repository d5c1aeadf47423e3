"""The storage tiers: the durable folder, each node's NVMe folder, the backup, and what staging may ask of them."""

from pathlib import Path

import dagster as dg
from pydantic import ConfigDict, Field

from slipway.resources.credentials import PublicAddress
from slipway.trainer.checkpoint.tiers import copying
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, Tier


class Tiers(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Paths of the tiers. A durable tier is a shared file system: CephFS, Lustre, NFS, or a local folder."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a refused address is not shown either

    durable: str = Field(description="Folder of the durable tier: snapshots, shards, trainings, checkpoints")
    nvme: str = Field(description="A node's own fast disk; {node} stands for the node's name")
    backup: PublicAddress = Field(
        default="",
        description="Object store of checkpoints (s3://bucket/prefix), or a folder; credentials come from AWS_*",
    )
    origins: list[PublicAddress] = Field(
        default=[],
        description=(
            "Folders and URLs that staging asks, in this order, for what the durable tier lacks or has damaged; "
            "one with {node} stands for all other nodes"
        ),
    )
    read_gigabytes_per_second: float | None = Field(
        default=None, gt=0, description="What the durable tier can give all nodes together; unknown by default"
    )
    node_gigabytes_per_second: float = Field(
        default=25.0, gt=0, description="What the durable tier can give one node at most"
    )
    staging_seconds: float = Field(default=120.0, gt=0, description="How long staging a snapshot should take at most")

    @property
    def durable_path(self) -> Path:
        return Path(self.durable)

    def nvme_path(self, node: str) -> Path:
        """The NVMe folder of one node, as seen from here."""
        return Path(self.nvme.format(node=node))

    def shared(self) -> dict[str, Tier]:
        """The tiers of checkpoints that all nodes share, by name. Raises ValueError for an unknown scheme."""
        where = {DURABLE: self.durable, BACKUP: self.backup}
        return {name: copying.tier_at(address) for name, address in where.items() if address}

    def staging_origins(self, node: str, nodes: list[str]) -> list[str]:
        """Folders and URLs where `node`, one of `nodes`, may fetch shards from, in order."""
        others = [other for other in nodes if other != node]
        named = [
            where.format(node=other) for where in self.origins for other in (others if "{node}" in where else [""])
        ]
        return [self.durable, *named]

    def bandwidth_warnings(self, size: int, nodes: int) -> list[str]:
        """Warnings that staging `size` bytes on each of `nodes` nodes takes longer than `staging_seconds`."""
        needed_per_node = size / self.staging_seconds / 1e9
        warnings = []
        if needed_per_node > self.node_gigabytes_per_second:
            warnings.append(
                f"a node needs {needed_per_node:.1f} GB/s, and one gets {self.node_gigabytes_per_second:g} GB/s at most"
            )
        if self.read_gigabytes_per_second is not None and nodes * needed_per_node > self.read_gigabytes_per_second:
            warnings.append(
                f"{nodes} nodes need {nodes * needed_per_node:.1f} GB/s, and the durable tier gives "
                f"{self.read_gigabytes_per_second:g} GB/s"
            )
        return warnings

"""The storage tiers: the durable folder, each node's NVMe folder and the backup, with their bandwidths for staging."""

from pathlib import Path

import dagster as dg
from pydantic import ConfigDict, Field

from slipway.resources.credentials import PublicAddress
from slipway.trainer.checkpoint.tiers import copying
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, Tier


class Tiers(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Paths of the tiers. A durable tier is a shared file system: CephFS, Lustre, NFS, or a local folder."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a rejected address may hold a secret

    durable: str = Field(description="Folder of the durable tier: snapshots, shards, trainings, checkpoints")
    nvme: str = Field(description="Folder on each node's own fast disk; {node} stands for the node's name")
    backup: PublicAddress = Field(
        default="",
        description=(
            "Object store (s3://bucket/prefix) or folder for copies of checkpoints; credentials come from AWS_*"
        ),
    )
    origins: list[PublicAddress] = Field(
        default=[],
        description=(
            "Folders and URLs from which staging fetches, in this order, what is missing or damaged on the durable "
            "tier; one with {node} stands for all other nodes"
        ),
    )
    read_gigabytes_per_second: float | None = Field(
        default=None, gt=0, description="Read bandwidth of the durable tier for all nodes together; unknown by default"
    )
    node_gigabytes_per_second: float = Field(
        default=25.0, gt=0, description="Maximum read bandwidth of the durable tier for one node"
    )
    staging_seconds: float = Field(default=120.0, gt=0, description="Longest acceptable time to stage a snapshot")

    @property
    def durable_path(self) -> Path:
        return Path(self.durable)

    def nvme_path(self, node: str) -> Path:
        """The path of one node's NVMe folder."""
        return Path(self.nvme.format(node=node))

    def shared(self) -> dict[str, Tier]:
        """The checkpoint tiers that all nodes share, by name. Raises ValueError for an unknown scheme."""
        where = {DURABLE: self.durable, BACKUP: self.backup}
        return {name: copying.tier_at(address) for name, address in where.items() if address}

    def staging_origins(self, node: str, nodes: list[str]) -> list[str]:
        """Folders and URLs from which `node`, one of `nodes`, may fetch shards, in order."""
        others = [other for other in nodes if other != node]
        sources = [self.durable]
        for origin in self.origins:
            sources += [origin.format(node=other) for other in others] if "{node}" in origin else [origin]
        return sources

    def bandwidth_warnings(self, size: int, nodes: int) -> list[str]:
        """Warnings that staging `size` bytes on each of `nodes` nodes takes longer than `staging_seconds`."""
        needed_per_node = size / self.staging_seconds / 1e9
        warnings = []
        if needed_per_node > self.node_gigabytes_per_second:
            warnings.append(
                f"a node needs {needed_per_node:.1f} GB/s, but gets at most {self.node_gigabytes_per_second:g} GB/s"
            )
        if self.read_gigabytes_per_second is not None and nodes * needed_per_node > self.read_gigabytes_per_second:
            warnings.append(
                f"{nodes} nodes need {nodes * needed_per_node:.1f} GB/s, but the durable tier gives "
                f"{self.read_gigabytes_per_second:g} GB/s"
            )
        return warnings

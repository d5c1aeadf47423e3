"""Hardware profiles: all that is known of a cluster's hardware, once. Recipes, overlays and plans take from here.

The data sheets of the GPUs are in `slipway.trainer.config.hardware`. `slipway.trainer.node.fabric` makes NCCL's
variables of `NETWORKS`.
"""

from dataclasses import dataclass
from typing import Any

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.config.hardware import CARDS, Card

GB = 10**9
TB = 10**12
FABRICS = {"h200-infiniband": "h200-32", "h100-8nic": "h100-8"}
"""The profile of the cluster by the value of a recipe's `hardware.profile`."""

ETHERNET: dict[str, Any] = {"infiniband": False, "socket_interface": "eth0", "debug": "WARN", "affinity": "numa"}
INFINIBAND: dict[str, Any] = {
    "infiniband": True,
    "adapters": "mlx5",
    "gid_index": 3,
    "gpudirect_level": "PXB",
    "gpudirect_read": True,
    "cross_nic": 1,
    "buffer_bytes": 16 * MIB,
    "p2p_level": "NVL",
    "socket_interface": "eth0",
    "debug": "WARN",
    "affinity": "numa",
}
NETWORKS: dict[str, dict[str, Any]] = {
    "none": {},
    "ethernet": ETHERNET,
    "h200-infiniband": INFINIBAND,
    # With an adapter for each GPU, a ring is faster if it stays on its rail.
    "h100-8nic": {**INFINIBAND, "cross_nic": 2},
}
"""Settings of NCCL and gloo by the value of a recipe's `hardware.profile`; they stand here alone. They are fields of
`slipway.trainer.config.operation.Hardware`, beside which are the reasons."""


@dataclass(frozen=True, kw_only=True)
class HardwareProfile:
    """One cluster of equal nodes."""

    name: str
    nodes: int
    gpus: int
    """GPUs, and so ranks, of a node."""
    card: str
    """The GPU, by its name in `slipway.trainer.config.hardware.CARDS`."""
    cores: int
    """Processor cores of a node."""
    pod_cores: int
    """Those that a training's pod asks for: the kubelet, DaemonSets and node tasks need the rest."""
    host_bytes: int
    """Memory of a node."""
    pod_bytes: int
    """Memory of a training's pod, unless its recipe says otherwise."""
    shared_bytes: int
    """The size of /dev/shm in a pod."""
    nvme_bytes: int
    nvme_rate: float
    """Bytes/s that a node writes to its NVMe, at least."""
    durable_rate: float
    """Bytes/s between one node and the durable tier, at most."""
    adapters: int
    """Network adapters of a node; each has 400 Gb/s."""
    fabric: str
    """The profile of `NETWORKS`, for recipes that name none."""
    rdma: str = "rdma/ib"
    """The name of a pod's RDMA device among its resources."""
    grace_seconds: int = 300
    """Between SIGTERM and SIGKILL of a pod."""
    rendezvous_port: int = 29500

    @property
    def sheet(self) -> Card:
        return CARDS[self.card]

    @property
    def ranks(self) -> int:
        """GPUs of the cluster."""
        return self.nodes * self.gpus

    def resources(self) -> dict[str, str]:
        """What each pod of a training asks Kubernetes for."""
        return {
            "nvidia.com/gpu": str(self.gpus),
            "cpu": str(self.pod_cores),
            "memory": f"{self.pod_bytes // GIB}Gi",
            self.rdma: "1",
        }

    def check_nodes(self, nodes: int, ranks_per_node: int, field: str) -> None:
        """Raises Invalid, at `field`, for more nodes than the cluster has, or more ranks on a node than GPUs."""
        has = f"{self.name} has {self.nodes} nodes of {self.gpus} GPUs"
        if nodes > self.nodes:
            gpus = nodes % self.gpus == 0 and nodes // self.gpus <= self.nodes
            hint = f"; {nodes} GPUs are {nodes // self.gpus} nodes" if gpus else ""
            expected = f"expected {self.nodes} at most, as {has}: a node is a machine, not a GPU{hint}"
            raise Invalid(field, f"found {nodes}, {expected}")
        if ranks_per_node > self.gpus:
            field = field.rpartition(".nodes")[0] + ".ranks_per_node"
            raise Invalid(field, f"found {ranks_per_node}, expected {self.gpus} at most, a rank for each GPU, as {has}")


PROFILES = {
    profile.name: profile
    for profile in (
        HardwareProfile(
            name="h200-32",
            nodes=32,
            gpus=8,
            card="H200",
            cores=128,
            pod_cores=120,
            host_bytes=1600 * GB,
            pod_bytes=512 * GIB,
            shared_bytes=128 * GIB,
            nvme_bytes=1 * TB,
            nvme_rate=7 * GB,
            durable_rate=25 * GB,
            adapters=8,
            fabric="h200-infiniband",
        ),
        HardwareProfile(
            name="h100-8",
            nodes=8,
            gpus=8,
            card="H100",
            cores=128,
            pod_cores=120,
            host_bytes=2 * TB,
            pod_bytes=512 * GIB,
            shared_bytes=128 * GIB,
            nvme_bytes=8 * 3840 * GB,
            nvme_rate=7 * GB,
            durable_rate=25 * GB,
            adapters=8,
            fabric="h100-8nic",
        ),
    )
}
"""By name. The first is the reference cluster, with CephFS; the second has Lustre."""


def named(name: str) -> HardwareProfile:
    """The profile of that name. Raises ValueError with the names that there are."""
    if name not in PROFILES:
        raise ValueError(f"found the hardware profile {name!r}, expected one of {', '.join(PROFILES)}")
    return PROFILES[name]

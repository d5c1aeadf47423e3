"""Two jobs and two clusters: one with every field set, and the smallest possible."""

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.protocol import Job

RICH = Job(
    "llama-70b-2",
    ("python", "-m", "slipway.trainer"),
    {"model": "llama-70b"},
    nodes=("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"),
    size=4,
    least=3,
    prefer=("gpu-1", "gpu-2"),
    ranks_per_node=8,
    environment={"SLIPWAY_INCARNATION": "2"},
    folder="/checkpoints/llama-70b",
    labels={"training": "llama-70b", "incarnation": "2", "run": "8f14e45f-ceea-467f-a9d4-2c5e1a7b3d10"},
)
LARGE = Cluster(
    image="registry.example.org/slipway/trainer@sha256:" + "5e" * 32,
    namespace="training",
    node_selector={"slipway/fleet": "h200"},
    resources={"cpu": "128", "memory": "512Gi", "nvidia.com/gpu": "8", "rdma/ib": "1"},
    shared_memory="128Gi",
    volumes={"/checkpoints": "checkpoints", "/nvme": "nvme", "/snapshots": "lustre"},
    environment={"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "ib0"},
    networks=("slipway/ib0@ib0", "slipway/ib1@ib1"),
    priority="production",
    topology="topology.example.org/rack",
    spot_tolerations=({"key": "example.org/spot", "operator": "Exists", "effect": "NoSchedule"},),
    spot=True,
    patch={"spec": {"containers": [{"name": "trainer", "env": [{"name": "TZ", "value": "UTC"}]}]}},
    recipe_patch={"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}}},
)
LONE = Job("tiny", ("python", "-m", "slipway.trainer"), {}, nodes=("node-0",))
SMALL = Cluster(image="slipway-trainer:dev")

"""What a cluster gives the pods that serve: the section `compute.serving` of the platform's settings.

The defaults are those of a model on four H200 by tensor parallelism.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from slipway.recipes.kubernetes import Quantity
from slipway.recipes.parts import Text
from slipway.trainer.base.invalid import positive, require

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """How models are served."""

    image: Text
    """vLLM's image, 0.18 or newer, by digest where it comes from a registry."""
    front_image: Text
    """The image of the front and of the init container that pulls a model: the platform's own."""
    nodes: int = 1
    """Nodes of one replica; with more than one it is a LeaderWorkerSet, and pipeline stages lie on the nodes."""
    tensor_parallel: int = 4
    """GPUs of one node that share each matrix."""
    context: int = 8192
    """Tokens of a prompt with its answer, at most."""
    memory_share: float = 0.90
    """Of each GPU's memory, for weights and the cache of keys and values."""
    dtype: str = "bfloat16"
    """The type that vLLM multiplies in."""
    resources: Mapping[str, Quantity] = field(default_factory=lambda: {GPU: "4", "cpu": "32", "memory": "256Gi"})
    """What each pod gets, as requests and as limits."""
    shared_memory: Quantity = "64Gi"
    """The size of /dev/shm, which counts as memory of the pod."""
    disk: Quantity = "500Gi"
    """Space on the node for the model's copy."""
    ready_seconds: int = 120
    """After so long the pod is first asked whether it is ready, and every 10 s from then on."""
    live_seconds: int = 180
    """After so long the pod is first asked whether it lives, and every 30 s from then on."""
    start_seconds: int = 1800
    """So long a pod may take until it answers for the first time; then it is started again. Until it has answered once
    nobody asks whether it is ready or lives."""
    least_replicas: int = 2
    """Pods, or groups of pods, of a version at least."""
    most_replicas: int = 6
    """Pods, or groups of pods, of a version at most."""
    scaler: Literal["hpa", "keda"] = "hpa"
    """hpa: by the GPUs' use. keda: by the requests that wait in vLLM, where the operator KEDA is installed."""
    gpu_use: int = 80
    """Percent of the GPUs' use above which replicas are added, one at a time; for hpa."""
    gpu_metric: Text = "DCGM_FI_DEV_GPU_UTIL"
    """The metric of the pods that says so, as the cluster's metrics adapter names it."""
    waiting_requests: int = 5
    """Requests that wait in vLLM, for each replica, above which replicas are added, one at a time; for keda."""
    prometheus: str = ""
    """The URL at which KEDA asks for vLLM's metrics, such as http://prometheus.monitoring.svc:9090; for keda."""
    up_seconds: int = 120
    """How long the use, or the queue, must be high before a replica is added."""
    down_seconds: int = 300
    """How long it must be low before one is taken away."""
    host: str = ""
    """The host of the Ingress; empty for no Ingress."""
    hosts: tuple[Text, ...] = ()
    """The hosts under which the front answers besides: those of a proxy or an Ingress of one's own."""
    ingress_class: str = "nginx"
    """The IngressClass, whose annotations for time-outs are those of nginx."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that serve."""
    tolerations: tuple[Mapping[str, str], ...] = ({"key": GPU, "operator": "Exists"},)
    """Taints of the nodes that serve."""
    priority: str = ""
    """The PriorityClass of the pods."""

    def __post_init__(self) -> None:
        positive(self, "nodes", "tensor_parallel", "context", "least_replicas", "up_seconds", "down_seconds")
        positive(self, "waiting_requests", "start_seconds")
        asks = self.scaler != "keda" or urlsplit(self.prometheus).scheme in ("http", "https")
        require(asks, "prometheus", f"found {self.prometheus!r}, expected the URL of Prometheus, as scaler is keda")
        require(0 < self.memory_share <= 1, "memory_share", "expected above 0 and 1 at most")
        require(0 < self.gpu_use <= 100, "gpu_use", "expected a percentage above 0")
        more = self.most_replicas >= self.least_replicas
        require(more, "most_replicas", f"expected least_replicas ({self.least_replicas}) or more")

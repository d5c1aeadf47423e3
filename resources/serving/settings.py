"""Serving settings: the section `compute.serving` of the platform's settings.

The defaults suit a model on four H200 GPUs with tensor parallelism.
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
    """The image of vLLM 0.18 or newer; by digest if it comes from a registry."""
    front_image: Text
    """The image of the front and of the init container that pulls a model; the platform's own image."""
    nodes: int = 1
    """The number of nodes of one replica. With more than one, a replica is a LeaderWorkerSet with one pipeline stage
    per node."""
    tensor_parallel: int = 4
    """The number of GPUs of one node for tensor parallelism."""
    context: int = 8192
    """The maximum number of tokens of a prompt with its answer."""
    memory_share: float = 0.90
    """The share of each GPU's memory for weights and the KV cache."""
    dtype: str = "bfloat16"
    """The type in which vLLM computes."""
    resources: Mapping[str, Quantity] = field(default_factory=lambda: {GPU: "4", "cpu": "32", "memory": "256Gi"})
    """The requests and the limits of each pod."""
    shared_memory: Quantity = "64Gi"
    """The size of /dev/shm, which counts as memory of the pod."""
    disk: Quantity = "500Gi"
    """The space on the node for the copy of the model."""
    ready_seconds: int = 120
    """The initial delay of the readiness probe, which then runs every 10 s."""
    live_seconds: int = 180
    """The initial delay of the liveness probe, which then runs every 30 s."""
    start_seconds: int = 1800
    """How long a pod may take until it answers for the first time. After that time, the pod is restarted. The readiness
    and liveness probes wait for the first answer."""
    least_replicas: int = 2
    """The minimum number of replicas of a version; a replica is a pod or a group of pods."""
    most_replicas: int = 6
    """The maximum number of replicas of a version."""
    scaler: Literal["hpa", "keda"] = "hpa"
    """The autoscaler. hpa: by GPU utilisation. keda: by the requests that wait in vLLM; needs the operator KEDA."""
    gpu_use: int = 80
    """For hpa: the GPU utilisation in percent above which replicas are added, one at a time."""
    gpu_metric: Text = "DCGM_FI_DEV_GPU_UTIL"
    """For hpa: the pod metric of GPU utilisation, as the cluster's metrics adapter names it."""
    waiting_requests: int = 5
    """For keda: the number of waiting requests per replica above which replicas are added, one at a time."""
    prometheus: str = ""
    """For keda: the URL of the Prometheus with vLLM's metrics, such as http://prometheus.monitoring.svc:9090."""
    up_seconds: int = 120
    """How long the utilisation or the queue must be high before a replica is added."""
    down_seconds: int = 300
    """How long the utilisation or the queue must be low before a replica is removed."""
    host: str = ""
    """The host of the Ingress; empty for no Ingress."""
    hosts: tuple[Text, ...] = ()
    """Further host names that the front accepts, for your own proxy or Ingress."""
    ingress_class: str = "nginx"
    """The IngressClass. It must support the time-out annotations of nginx."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of the nodes for serving."""
    tolerations: tuple[Mapping[str, str], ...] = ({"key": GPU, "operator": "Exists"},)
    """The tolerations of the serving pods."""
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

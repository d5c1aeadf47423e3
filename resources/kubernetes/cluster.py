"""What a cluster gives the pods of a job: one value, from the platform's settings, which a recipe may override."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from recipes.kubernetes import Kubernetes, Quantity
from recipes.parts import Text


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The defaults are those that every cluster has; the rest is the platform's to say."""

    image: Text
    """The trainer's image, by digest where it comes from a registry."""
    namespace: str = "slipway"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    service_account: str = "slipway-trainer"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes of the fleet."""
    resources: Mapping[str, Quantity] = field(default_factory=dict)
    """What each pod of a training is given, as requests and as limits."""
    shared_memory: Quantity = "1Gi"
    """The size of /dev/shm, which loaders' workers and NCCL share; it counts as memory of the pod."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """PersistentVolumeClaims by where they are mounted: the durable tier and each node's NVMe."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to what every container sees."""
    networks: tuple[str, ...] = ()
    """The NetworkAttachmentDefinitions that pods are attached to besides the cluster's own network: RDMA by Multus."""
    user: int = 1000
    """Who the pods' processes are, uid and gid, and whom volumes are given to."""
    queue: str = ""
    """The Kueue LocalQueue that admits jobs; empty without Kueue."""
    scheduler: str = ""
    """The scheduler of the pods: `volcano` gives them a PodGroup; empty for the cluster's own."""
    priority: str = ""
    """The PriorityClass of the pods."""
    topology: str = ""
    """The label that says where in the network a node is (a rack, a block), for `spread`."""
    spread: Literal["pack", "spread"] = "pack"
    """Nodes close together in the topology, or apart; either where it can be had."""
    tolerations: tuple[Mapping[str, str], ...] = ({"key": "nvidia.com/gpu", "operator": "Exists"},)
    """Taints of the nodes that all jobs tolerate."""
    spot_tolerations: tuple[Mapping[str, str], ...] = ()
    """What else a job tolerates that may run on spot nodes."""
    spot: bool = False
    """Whether jobs may run on spot nodes."""
    grace_seconds: int = 300
    """Between SIGTERM and SIGKILL: the time for a last checkpoint."""
    unreachable_seconds: int = 30
    """After which the pods of a node that is not ready, or does not answer, are given up."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """Merged into every pod template, before the recipe's own; see `recipes.kubernetes`."""
    recipe_patch: Mapping[str, Any] = field(default_factory=dict)

    def with_recipe(self, said: Mapping[str, object]) -> "Cluster":
        """This cluster as a recipe wants it, which is `recipes.kubernetes.Kubernetes` as JSON has it."""
        wanted = Kubernetes.model_validate(said).model_dump(exclude_none=True)
        return dataclasses.replace(self, recipe_patch=wanted.pop("patch"), **wanted)

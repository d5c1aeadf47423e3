"""What a cluster gives the pods of a job: from the platform's settings; a recipe may override it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slipway.recipes.kubernetes import KubernetesSection, Quantity, lesser
from slipway.recipes.parts import Text


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The section `compute.cluster` of the platform's settings; the defaults suit every cluster."""

    image: Text
    """The trainer's image, by digest where it comes from a registry."""
    namespace: str = "slipway"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    service_account: str = "slipway-trainer"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes of the fleet."""
    store_node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes for the jobs' rendezvous stores; without any, they prefer nodes outside the fleet."""
    resources: Mapping[str, Quantity] = field(default_factory=dict)
    """What each pod of a training gets: its limits, and its requests but for `requests`."""
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    """What is reserved for each pod where that is less than its limits, for nodes that have other work too. A pod of a
    cluster with GPUs wants all that it gets."""
    runtime_class: str = ""
    """The RuntimeClass of the pods, such as a sandbox (gvisor), through which no RDMA goes."""
    shared_memory: Quantity = "1Gi"
    """The size of /dev/shm, which loaders' workers and NCCL share; it counts as memory of the pod."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """PersistentVolumeClaims by the path of their mount: the durable tier and each node's NVMe."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every container."""
    networks: tuple[str, ...] = ()
    """The NetworkAttachmentDefinitions that pods are attached to besides the cluster's own network: RDMA by Multus.
    What follows an @ is the interface's name in the pod (slipway/ib0@ib0); without it Multus calls them net1, net2."""
    user: int = 1000
    """The uid and gid of the pods' processes and of their volumes."""
    network_policy: bool = True
    """Whether each job gets a NetworkPolicy, by which its pods reach one another and those of no other job."""
    memlock: Literal["node", "root"] = "node"
    """Where the right to lock memory comes from, without which NCCL falls back from RDMA to TCP: from the nodes, whose
    containerd has no limit, or from a start as root that raises the limit and then becomes `user` for good. The second
    needs a namespace whose Pod Security lets root start."""
    queue: str = ""
    """The Kueue LocalQueue that admits jobs; empty without Kueue."""
    scheduler: str = ""
    """The scheduler of the pods: `volcano` gives them a PodGroup; empty for the cluster's own."""
    volcano_queue: str = ""
    """The Volcano Queue of the jobs, with that scheduler; empty for Volcano's own default."""
    priority: str = ""
    """The PriorityClass of the pods."""
    demand_priority: str = ""
    """The PriorityClass of the placeholders by which a cluster autoscaler sees how many nodes a training waits for;
    empty for a fleet that no autoscaler changes. With it, a fleet without any node is no mistake."""
    topology: str = ""
    """The node label that names a place in the network (a rack, a block), for `spread`."""
    spread: Literal["pack", "spread"] = "pack"
    """Whether a job prefers nodes close together in the topology, or apart."""
    tolerations: tuple[Mapping[str, str], ...] = ({"key": "nvidia.com/gpu", "operator": "Exists"},)
    """Taints of the nodes that all jobs tolerate."""
    spot_tolerations: tuple[Mapping[str, str], ...] = ()
    """Further taints, those of spot nodes, that jobs with `spot` tolerate."""
    spot: bool = False
    """Whether jobs may run on spot nodes."""
    grace_seconds: int = 300
    """Seconds between SIGTERM and SIGKILL: the time for a last checkpoint."""
    unreachable_seconds: int = 30
    """Seconds after which the pods of a node that is not ready, or does not answer, are given up."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """Merged into every pod template, before the recipe's own; see `slipway.recipes.kubernetes`."""
    recipe_patch: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's own patch of the pod template."""

    @property
    def requested(self) -> dict[str, str]:
        """What is reserved for each pod of a training; never more than its limits."""
        return lesser(self.resources, self.requests)

    def with_recipe(self, section: Mapping[str, object]) -> "Cluster":
        """This cluster with what a recipe overrides: `section` is a `slipway.recipes.kubernetes.KubernetesSection` as
        JSON."""
        overrides = KubernetesSection.model_validate(section).model_dump(exclude_none=True)
        return dataclasses.replace(self, recipe_patch=overrides.pop("patch"), **overrides)

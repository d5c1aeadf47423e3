"""Cluster settings: what the pods of a job get, from the platform's settings; a recipe may override it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slipway.recipes.kubernetes import KubernetesSection, Quantity, lesser
from slipway.recipes.parts import Text


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The section `compute.cluster` of the platform's settings. The defaults suit every cluster."""

    image: Text
    """The trainer's image; by digest if it comes from a registry."""
    namespace: str = "slipway"
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    service_account: str = "slipway-trainer"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of the fleet's nodes."""
    store_node_selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of nodes for the rendezvous stores of jobs. Without labels, stores prefer nodes outside the fleet."""
    resources: Mapping[str, Quantity] = field(default_factory=dict)
    """The limits of each pod of a training, and its requests unless `requests` sets them."""
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    """The requests of each pod, if they are lower than its limits, for nodes that also run other work. On GPU nodes,
    leave this empty."""
    runtime_class: str = ""
    """The RuntimeClass of the pods, such as a sandbox (gvisor). A sandbox does not support RDMA."""
    shared_memory: Quantity = "1Gi"
    """The size of /dev/shm, which data loaders and NCCL use. It counts as memory of the pod."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """The PersistentVolumeClaims by mount path: the durable tier and each node's NVMe."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the environment of every container."""
    networks: tuple[str, ...] = ()
    """The NetworkAttachmentDefinitions to which Multus attaches pods besides the cluster's own network, for RDMA. The
    text after an @ is the interface's name in the pod (slipway/ib0@ib0); without it, Multus uses net1, net2 and so on.
    """
    user: int = 1000
    """The uid and gid of the pods' processes and of their volumes."""
    network_policy: bool = True
    """Whether each job gets a NetworkPolicy that lets its pods reach one another, but not the pods of other jobs."""
    memlock: Literal["node", "root"] = "node"
    """How pods may lock memory, without which NCCL falls back from RDMA to TCP. `node`: the nodes' containerd sets no
    limit. `root`: the container starts as root, raises the limit, and then permanently becomes `user`; the namespace's
    Pod Security must allow root."""
    queue: str = ""
    """The Kueue LocalQueue that admits jobs; empty without Kueue."""
    scheduler: str = ""
    """The scheduler of the pods; `volcano` also adds a PodGroup. Empty for the cluster's default scheduler."""
    volcano_queue: str = ""
    """The Volcano Queue of the jobs, if `scheduler` is volcano; empty for Volcano's default queue."""
    priority: str = ""
    """The PriorityClass of the pods."""
    demand_priority: str = ""
    """The PriorityClass of the placeholder pods that show a cluster autoscaler how many nodes a training waits for.
    Leave it empty if no autoscaler changes the fleet. If it is set, a fleet without nodes is no error."""
    topology: str = ""
    """The node label with the position in the network (a rack, a block), for `spread`."""
    spread: Literal["pack", "spread"] = "pack"
    """Whether a job prefers nodes that are close together (pack) or far apart (spread) in the topology."""
    tolerations: tuple[Mapping[str, str], ...] = ({"key": "nvidia.com/gpu", "operator": "Exists"},)
    """The tolerations of all jobs."""
    spot_tolerations: tuple[Mapping[str, str], ...] = ()
    """Additional tolerations, for spot nodes, of jobs with `spot`."""
    spot: bool = False
    """Whether jobs may run on spot nodes."""
    grace_seconds: int = 300
    """The time between SIGTERM and SIGKILL in seconds, for a last checkpoint."""
    unreachable_seconds: int = 30
    """The seconds after which pods on a node that is not ready or does not answer count as lost."""
    patch: Mapping[str, Any] = field(default_factory=dict)
    """A patch for every pod template, merged before the recipe's own; see `slipway.recipes.kubernetes`."""
    recipe_patch: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's own patch of the pod template."""

    @property
    def requested(self) -> dict[str, str]:
        """The requests of each pod of a training; never more than its limits."""
        return lesser(self.resources, self.requests)

    def with_recipe(self, section: Mapping[str, object]) -> "Cluster":
        """These settings with a recipe's overrides; `section` is a `slipway.recipes.kubernetes.KubernetesSection` as
        JSON."""
        overrides = KubernetesSection.model_validate(section).model_dump(exclude_none=True)
        return dataclasses.replace(self, recipe_patch=overrides.pop("patch"), **overrides)

"""The compute of a Kubernetes cluster: its launcher, its fleet, and node tasks as pods pinned to their nodes.

Sensors, which run often in the code server, read one mirror of the cluster. A run waits for one job only, and asks the
API server directly.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from slipway.recipes.strict import validate
from slipway.resources.compute.protocol import Compute
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.fleet.kubernetes.cordon import Cordon
from slipway.resources.fleet.kubernetes.fleet import KubernetesFleet
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.mirror import Mirror
from slipway.resources.kubernetes.objects import ClusterReader
from slipway.resources.launchers.kubernetes import access
from slipway.resources.launchers.kubernetes.demand import NodeDemand
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.node_tasks.by_jobs import FOLDER, ByJobs
from slipway.resources.platform import ComputeSettings, NodeTaskSettings
from slipway.resources.serving.cluster import ClusterServing
from slipway.resources.tiers import Tiers
from slipway.trainer.config import profiles
from slipway.trainer.config.profiles import HardwareProfile

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
"""The toleration with which a diagnosis runs on a cordoned node."""
GPU = "nvidia.com/gpu"


class KubernetesCompute(Compute):
    """A Kubernetes cluster."""

    poll_seconds: ClassVar[float] = 10.0
    sees_nodes: ClassVar[bool] = False
    settings: dict[str, Any] = Field(description="The section `compute` of the platform's settings")
    _in_a_run: bool = PrivateAttr(default=True)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Remember whether a run uses this resource, or a sensor or schedule in the code server."""
        self._in_a_run = context.run is not None

    def launcher(self) -> KubernetesLauncher:
        return KubernetesLauncher(self._client, self._cluster, self._workload, self._mirror)

    def fleet(self) -> KubernetesFleet:
        return KubernetesFleet(self._mirror or self._client, self._cluster)

    def node_tasks(self, tiers: Tiers) -> ByJobs:
        """Node tasks as jobs. They write results to the durable tier, which all pods mount at the same path."""
        cluster = node_task_cluster(self._cluster, self._compute.node_tasks)
        launcher = KubernetesLauncher(self._client, cluster, KINDS["job"])
        return ByJobs(launcher, self.fleet(), tiers.durable_path / FOLDER, self.poll_seconds)

    def diagnosis(self, tiers: Tiers) -> ByJobs:
        """Node tasks with the resources of a training's pod, which also run on a cordoned node."""
        cluster = dataclasses.replace(
            self._cluster,
            priority=self._compute.node_tasks.priority,
            queue="",
            scheduler="",
            topology="",
            tolerations=(*self._cluster.tolerations, *self._cluster.spot_tolerations, UNSCHEDULABLE),
        )
        launcher = KubernetesLauncher(self._client, cluster, KINDS["job"])
        return ByJobs(launcher, self.fleet(), tiers.durable_path / FOLDER, self.poll_seconds)

    def serving(self, tiers: Tiers) -> ClusterServing:
        return ClusterServing(self._client, self._cluster, self._compute.serving)

    def scheduler(self, tiers: Tiers) -> Cordon:
        return Cordon(self._client, dict(self._cluster.node_selector), tiers.durable_path)

    def node_demand(self) -> NodeDemand | None:
        return NodeDemand(self._client, self._cluster) if self._cluster.demand_priority else None

    @property
    def health_rules(self) -> HealthRules:
        return self._compute.quarantine

    @property
    def gpus(self) -> int:
        return int(self._cluster.resources.get(GPU, "0"))

    @property
    def grace_seconds(self) -> float:
        return self._cluster.grace_seconds

    @property
    def hardware(self) -> HardwareProfile | None:
        name = self._compute.hardware
        return profiles.named(name) if name else None

    @property
    def _compute(self) -> ComputeSettings:
        return validate(ComputeSettings, self.settings)

    @property
    def _cluster(self) -> Cluster:
        return self._compute.cluster

    @property
    def _workload(self) -> Workload:
        return KINDS[self._compute.launcher]

    @property
    def _client(self) -> Client:
        return _client(self._compute.kubeconfig, self._compute.context, self._cluster.namespace)

    @property
    def _mirror(self) -> ClusterReader | None:
        return None if self._in_a_run else _mirror(self._client)


def node_task_cluster(cluster: Cluster, settings: NodeTaskSettings) -> Cluster:
    """The cluster's settings for the pods of node tasks: no GPU, no RDMA and no queue."""
    return dataclasses.replace(
        cluster,
        resources=settings.resources,
        requests=settings.requests,
        runtime_class="",
        priority=settings.priority,
        queue="",
        scheduler="",
        topology="",
        networks=(),
    )


@functools.cache
def _client(kubeconfig: str, context: str, namespace: str) -> Client:
    """The client of a cluster, one per process, since it keeps its connections open."""
    return Client(kubeconfig, context, namespace)


@functools.cache
def _mirror(client: Client) -> ClusterReader:
    """The mirror of a cluster, one per process."""
    return Mirror(client, access.mirrored_kinds())

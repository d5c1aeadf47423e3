"""The compute of a cluster: its launcher, its fleet, and node tasks as pods pinned to their nodes.

In the code server, whose sensors ask again and again, all read through one mirror of the cluster; a run asks the API
server itself, for the little that it waits for.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from recipes.strict import validate
from resources.compute import Compute
from resources.kubernetes.client import Client
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.fleet import KubernetesFleet
from resources.kubernetes.launcher import KubernetesLauncher
from resources.kubernetes.mirror import Mirror
from resources.kubernetes.reader import Reader
from resources.kubernetes.workloads import KINDS
from resources.kubernetes.workloads.protocol import Workload
from resources.node_tasks.by_jobs import FOLDER, ByJobs
from resources.platform import ComputeSettings, NodeTaskSettings
from resources.tiers import Tiers


class KubernetesCompute(Compute):
    """A cluster."""

    poll_seconds: ClassVar[float] = 10.0
    sees_nodes: ClassVar[bool] = False
    settings: dict[str, Any] = Field(description="The section `compute` of the platform's settings")
    _in_a_run: bool = PrivateAttr(default=True)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Sensors and schedules, which are evaluated in the code server, have no run."""
        self._in_a_run = context.run is not None

    def launcher(self) -> KubernetesLauncher:
        return KubernetesLauncher(self._client, self._cluster, self._workload, self._mirror)

    def fleet(self) -> KubernetesFleet:
        return KubernetesFleet(self._mirror or self._client, self._cluster)

    def node_tasks(self, tiers: Tiers) -> ByJobs:
        """Outcomes are left on the durable tier, which every pod of a job mounts where it is here."""
        cluster = of_node_tasks(self._cluster, self._read.node_tasks)
        launcher = KubernetesLauncher(self._client, cluster, KINDS["job"])
        return ByJobs(launcher, self.fleet(), tiers.durable_path / FOLDER, self.poll_seconds)

    @property
    def grace_seconds(self) -> float:
        return self._cluster.grace_seconds

    @property
    def _read(self) -> ComputeSettings:
        return validate(ComputeSettings, self.settings)

    @property
    def _cluster(self) -> Cluster:
        return self._read.cluster

    @property
    def _workload(self) -> Workload:
        return KINDS[self._read.launcher]

    @property
    def _client(self) -> Client:
        return _client(self._read.kubeconfig, self._read.context, self._cluster.namespace)

    @property
    def _mirror(self) -> Reader | None:
        return None if self._in_a_run else _mirror(self._client)


def of_node_tasks(cluster: Cluster, settings: NodeTaskSettings) -> Cluster:
    """What a cluster gives the pods of node tasks: no GPU and no RDMA, and no queue to wait in for them."""
    return dataclasses.replace(
        cluster,
        resources=settings.resources,
        priority=settings.priority,
        queue="",
        scheduler="",
        topology="",
        networks=(),
    )


@functools.cache
def _client(kubeconfig: str, context: str, namespace: str) -> Client:
    """One for each cluster and process, which keeps its connections."""
    return Client(kubeconfig, context, namespace)


@functools.cache
def _mirror(client: Client) -> Reader:
    """One for each cluster and process, begun when somebody first looks into it."""
    return Mirror(client)

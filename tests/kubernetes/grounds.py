"""The clusters of the drills: the simulated one, or the one that KUBECONFIG names, with the same faults.

A real cluster is broken by commands of whoever has it, each given the node's name as its last word:
SLIPWAY_TEST_POWER_OFF, SLIPWAY_TEST_POWER_ON, SLIPWAY_TEST_PARTITION, SLIPWAY_TEST_HEAL, and SLIPWAY_TEST_RESTART_API
(without a name). Trainings need a folder that this process and all pods see under the same path, and all may write
in: SLIPWAY_TEST_SHARED. What is not said, the drills that need it skip.
"""

import os
import shlex
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import kubernetes
import pytest

from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOB, PODS, KubernetesObject
from tests.conftest import MARK, until
from tests.kubernetes.live import Live
from tests.kubernetes.simulated.cluster import Cluster as SimulatedCluster


class Ground(Protocol):
    """A cluster that a drill may break, and a namespace of the drill's own in it."""

    @property
    def client(self) -> Client: ...

    @property
    def cluster(self) -> Cluster: ...

    def folder(self) -> Path:
        """A new folder that this process and all pods may read and write."""

    def power_off(self, node: str) -> None: ...

    def power_on(self, node: str) -> None: ...

    def partition(self, node: str) -> None:
        """Cut the kubelet off; the processes on the node go on."""

    def heal(self, node: str) -> None: ...

    def restart_api(self) -> None: ...

    def evict(self, pod: str) -> None:
        """Evict the pod, like a drain of its node."""

    def clear(self) -> None:
        """Remove all jobs."""


def asked_for(request: pytest.FixtureRequest, folder: Path, grace_seconds: int) -> Ground:
    """The cluster that the parameter of a fixture names, `real` or the simulated one."""
    if request.param == "real":
        return RealGround(request.getfixturevalue("live"))
    simulation: SimulatedCluster = request.getfixturevalue("simulated")
    namespace: str = request.getfixturevalue("namespace")
    client = Client(str(simulation.kubeconfig), namespace=namespace)
    cluster = Cluster(image="slipway-trainer:test", namespace=namespace, grace_seconds=grace_seconds)
    return SimulatedGround(simulation, client, cluster, folder)


def pods_of(ground: Ground, order: str) -> list[KubernetesObject]:
    """The pods of one job, by name."""
    return sorted(ground.client.list(PODS, {JOB: order}), key=lambda pod: str(pod["metadata"]["name"]))


@dataclass(frozen=True)
class SimulatedGround:
    """Implements `Ground`."""

    simulation: SimulatedCluster
    client: Client
    cluster: Cluster
    root: Path

    def folder(self) -> Path:
        folder = self.root / uuid.uuid4().hex
        folder.mkdir()
        return folder

    def power_off(self, node: str) -> None:
        self.simulation.power_off(node)

    def power_on(self, node: str) -> None:
        self.simulation.power_on(node)

    def partition(self, node: str) -> None:
        self.simulation.partition(node)

    def heal(self, node: str) -> None:
        self.simulation.heal(node)

    def restart_api(self) -> None:
        self.simulation.restart_api()

    def evict(self, pod: str) -> None:
        self.simulation.evict(self.client.namespace, pod)

    def clear(self) -> None:
        Live(self.client, self.cluster).clear()


@dataclass(frozen=True)
class RealGround:
    """Implements `Ground`."""

    live: Live

    @property
    def client(self) -> Client:
        return self.live.client

    @property
    def cluster(self) -> Cluster:
        return self.live.cluster

    def folder(self) -> Path:
        folder = Path(_required("SLIPWAY_TEST_SHARED", "a folder that all pods see")) / uuid.uuid4().hex
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def power_off(self, node: str) -> None:
        _run("SLIPWAY_TEST_POWER_OFF", node)

    def power_on(self, node: str) -> None:
        _run("SLIPWAY_TEST_POWER_ON", node)
        self._until_ready(node)

    def partition(self, node: str) -> None:
        _run("SLIPWAY_TEST_PARTITION", node)

    def heal(self, node: str) -> None:
        _run("SLIPWAY_TEST_HEAL", node)
        self._until_ready(node)

    def restart_api(self) -> None:
        _run("SLIPWAY_TEST_RESTART_API")

    def evict(self, pod: str) -> None:
        api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(self.client.kubeconfig))
        eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod))
        api.create_namespaced_pod_eviction(pod, self.client.namespace, eviction)

    def clear(self) -> None:
        self.live.clear()

    def _until_ready(self, node: str) -> None:
        until(lambda: node in self.live.ready_nodes(), f"node {node} to be ready", seconds=600)


def _required(variable: str, what: str) -> str:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} does not name {what}")
    return value


def _run(variable: str, *arguments: str) -> None:
    command = _required(variable, "the command that does this to the cluster")
    # Its processes belong to the cluster: with the test's mark they would be ended with the test.
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    subprocess.run([*shlex.split(command), *arguments], check=True, stdout=subprocess.DEVNULL, env=unmarked)

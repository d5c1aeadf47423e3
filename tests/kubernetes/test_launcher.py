"""Jobs of every kind pass the launcher contract on a simulated cluster: over HTTP, with real processes for pods."""

from collections.abc import Iterator

import pytest

from resources.kubernetes.client import Client
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.launcher import KubernetesLauncher
from resources.kubernetes.workloads.indexed_job import IndexedJob
from resources.kubernetes.workloads.protocol import Workload
from tests.conftest import Marked
from tests.kubernetes.live import Live
from tests.kubernetes.simulated.cluster import Cluster as Simulated
from tests.launcher.contract import LauncherContract, Nodes


@pytest.fixture
def nodes() -> Nodes:
    return ("node-0", "node-1")


@pytest.fixture
def survivors(marked: Marked) -> Marked:
    return marked


class OnASimulatedCluster(LauncherContract):
    """The contract, for a kind of workload."""

    workload: Workload

    @pytest.fixture
    def launcher(self, marked: Marked, simulated: Simulated, namespace: str) -> Iterator[KubernetesLauncher]:
        client = Client(str(simulated.kubeconfig), namespace=namespace)
        cluster = Cluster(image="slipway-trainer:test", namespace=namespace)
        yield KubernetesLauncher(client, cluster, self.workload)
        Live(client, cluster).clear()


class TestIndexedJob(OnASimulatedCluster):
    workload = IndexedJob()

"""Jobs of every kind pass the launcher contract on a real cluster."""

from collections.abc import Iterator

import pytest

from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.kubernetes.workloads.pytorch_job import PyTorchJob
from slipway.resources.launchers.kubernetes.workloads.train_job import TrainJob
from tests.kubernetes.live import Live, allow_names, connected, furnished, skip_without_a_cluster
from tests.resources.launchers.contract import LauncherContract, Nodes

pytestmark = pytest.mark.cluster
skip_without_a_cluster()


@pytest.fixture
def live() -> Iterator[Live]:
    """A namespace for each test: controllers remember names for a while, and names of jobs are unique."""
    with furnished(connected()) as cluster_under_test:
        allow_names(cluster_under_test.client)
        yield cluster_under_test


@pytest.fixture
def nodes(live: Live) -> Nodes:
    ready = live.ready_nodes()
    if len(ready) < 2:
        pytest.skip(f"the cluster has {len(ready)} ready nodes, and two are needed")
    return (ready[0], ready[1])


@pytest.fixture
def survivors(live: Live) -> Live:
    return live


class OnTheCluster(LauncherContract):
    """The contract, for a kind of workload."""

    workload: Workload

    @pytest.fixture
    def launcher(self, live: Live) -> Iterator[KubernetesLauncher]:
        if not live.client.serves(self.workload.resource):
            pytest.skip(f"the cluster has no {self.workload.resource.plural}.{self.workload.resource.group}")
        yield KubernetesLauncher(live.client, live.cluster, self.workload)
        live.clear()


class TestJobSet(OnTheCluster):
    workload = JobSet()


class TestIndexedJob(OnTheCluster):
    workload = IndexedJob()


class TestTrainJob(OnTheCluster):
    workload = TrainJob()


class TestPyTorchJob(OnTheCluster):
    workload = PyTorchJob()

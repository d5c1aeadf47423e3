"""Jobs of every kind pass the launcher contract on a simulated cluster: over HTTP, with real processes for pods."""

import dataclasses
from collections.abc import Iterator

import pytest

from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.mirror import Mirror
from slipway.resources.kubernetes.objects import PODS
from slipway.resources.launchers.kubernetes import access
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.kubernetes.workloads.pytorch_job import PyTorchJob
from slipway.resources.launchers.kubernetes.workloads.train_job import TrainJob
from slipway.resources.launchers.protocol import JobState
from tests.conftest import Marked
from tests.kubernetes.live import Live
from tests.kubernetes.simulated.cluster import Cluster as Simulated
from tests.resources.launchers.contract import LauncherContract, Nodes, Survivors, ended, job
from tests.resources.launchers.rank_records import RankRecords


@pytest.fixture
def nodes() -> Nodes:
    return ("node-0", "node-1")


@pytest.fixture
def survivors(marked: Marked) -> Marked:
    return marked


def on(simulated: Simulated, namespace: str, workload: Workload) -> KubernetesLauncher:
    client = Client(str(simulated.kubeconfig), namespace=namespace)
    cluster = Cluster(image="slipway-trainer:test", namespace=namespace, grace_seconds=5)
    return KubernetesLauncher(client, cluster, workload)


class OnASimulatedCluster(LauncherContract):
    """The contract, for a kind of workload."""

    workload: Workload

    @pytest.fixture
    def launcher(self, marked: Marked, simulated: Simulated, namespace: str) -> Iterator[KubernetesLauncher]:
        launcher = on(simulated, namespace, self.workload)
        yield launcher
        Live(launcher.client, launcher.cluster).clear()


class TestJobSet(OnASimulatedCluster):
    workload = JobSet()

    @pytest.mark.slow
    def test_a_job_whose_rendezvous_store_died_fails(
        self, launcher: KubernetesLauncher, nodes: Nodes, rank_records: RankRecords, survivors: Survivors
    ):
        launcher.submit(job("runs", *nodes))
        rank_records.until("pid", count=2)
        launcher.client.delete(PODS, "job-1-store", grace_seconds=1)
        assert ended(launcher).state is JobState.FAILED
        survivors.until_gone()


@pytest.mark.nightly
class TestIndexedJob(OnASimulatedCluster):
    workload = IndexedJob()


@pytest.mark.nightly
class TestTrainJob(OnASimulatedCluster):
    workload = TrainJob()


@pytest.mark.nightly
class TestPyTorchJob(OnASimulatedCluster):
    workload = PyTorchJob()


@pytest.mark.slow
class TestJobSetThroughAMirror(OnASimulatedCluster):
    """A sensor's launcher, which reads a mirror first."""

    workload = JobSet()

    @pytest.fixture
    def launcher(self, marked: Marked, simulated: Simulated, namespace: str) -> Iterator[KubernetesLauncher]:
        launcher = on(simulated, namespace, self.workload)
        mirror = Mirror(launcher.client, access.mirrored_kinds())
        yield dataclasses.replace(launcher, mirror=mirror)
        mirror.close()
        Live(launcher.client, launcher.cluster).clear()

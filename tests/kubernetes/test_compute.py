"""The compute of a cluster: which processes read the mirror, and the resources of node tasks' pods."""

import dagster as dg
import pytest

from slipway.operations.restore_drill import restore_checks
from slipway.recipes.load import load, recipes_folder
from slipway.resources.compute.kubernetes import KubernetesCompute, node_task_cluster
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.platform import NodeTaskSettings
from slipway.resources.tiers import Tiers
from tests.kubernetes.settings import settings


@pytest.fixture
def compute() -> KubernetesCompute:
    return KubernetesCompute(settings=settings(launcher="job")["compute"])


def test_sensors_read_through_one_mirror(compute: KubernetesCompute):
    launchers: list[KubernetesLauncher] = []

    @dg.sensor(name="looks", target="*")
    def looks(context: dg.SensorEvaluationContext, compute: KubernetesCompute) -> dg.SkipReason:
        launchers.append(compute.launcher())
        return dg.SkipReason("it has looked")

    for _ in range(2):
        with dg.build_sensor_context(resources={"compute": compute}) as context:
            looks(context)
    [first, second] = launchers
    assert first.mirror is not None and first.mirror is second.mirror


def test_a_run_asks_the_cluster_itself(compute: KubernetesCompute):
    launchers: list[KubernetesLauncher] = []

    @dg.asset
    def looks(compute: KubernetesCompute) -> None:
        launchers.append(compute.launcher())

    assert dg.materialize([looks], resources={"compute": compute}).success
    assert [launcher.mirror for launcher in launchers] == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_workload_can_be_chosen(kind: str):
    compute = KubernetesCompute(settings=settings(launcher=kind)["compute"])
    assert compute.launcher().workload is KINDS[kind]


def test_node_tasks_need_no_custom_resource(compute: KubernetesCompute, tmp_path):
    launcher = compute.node_tasks(Tiers(durable=str(tmp_path), nvme="/mnt/nvme")).launcher
    assert isinstance(launcher, KubernetesLauncher) and launcher.workload.resource.group == "batch"


def test_pods_of_node_tasks_take_no_gpu_and_wait_in_no_queue():
    of_trainings = Cluster(
        image="trainer",
        resources={"cpu": "128", "nvidia.com/gpu": "8", "rdma/ib": "1"},
        volumes={"/mnt/durable": "durable", "/mnt/nvme": "nvme"},
        networks=("slipway/ib0",),
        queue="training",
        scheduler="volcano",
        priority="production",
    )
    cluster = node_task_cluster(
        of_trainings, NodeTaskSettings(resources={"cpu": "2", "memory": "1Gi"}, priority="upkeep")
    )
    assert (cluster.resources, cluster.priority) == ({"cpu": "2", "memory": "1Gi"}, "upkeep")
    assert (cluster.queue, cluster.scheduler, cluster.networks) == ("", "", ())
    assert cluster.volumes == of_trainings.volumes and cluster.tolerations == of_trainings.tolerations


def test_a_drill_of_the_nodes_own_disks_says_that_they_cannot_be_seen_from_here(compute: KubernetesCompute, tmp_path):
    tiers = Tiers(durable=str(tmp_path), nvme=str(tmp_path / "nvme"))
    (tmp_path / "nvme" / "checkpoints").mkdir(parents=True)
    recipe = load(recipes_folder({}), {}).trainings["tiny-decoder"]
    [nvme, *_] = restore_checks(recipe)
    result = nvme(dg.build_asset_check_context(), tiers=tiers, compute=compute)
    assert isinstance(result, dg.AssetCheckResult)
    assert result.passed and result.metadata["note"].value == "the nodes' disks can be seen on the nodes alone"

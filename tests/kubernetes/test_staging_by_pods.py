"""Staging on a cluster: a pod pinned to the node stages its shards, and outlives the run that asked for them."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.staging import staging_assets
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import receipts
from slipway.resources.compute.kubernetes import KubernetesCompute
from slipway.resources.kubernetes.objects import JOB, PODS, KubernetesObject
from slipway.resources.tiers import Tiers
from slipway.trainer.data import shards
from slipway.trainer.staging.stage import is_staged
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import Marked, until
from tests.kubernetes.settings import settings
from tests.kubernetes.simulated.cluster import Cluster
from tests.trainer.staging.folders import half_a_shard, is_in_mid_copy

RECIPE = DatasetRecipe.model_validate(
    {"name": "texts", "description": "Texts", "owner": "team:data", "source": {"kind": "stdlib"}}
)


class Site:
    """A durable tier with a snapshot, a cluster's nodes with disks of their own, and Dagster over them."""

    def __init__(self, root: Path, cluster: Cluster, namespace: str, instance: dg.DagsterInstance) -> None:
        self.cluster, self.namespace, self.instance = cluster, namespace, instance
        self.durable = root / "durable"
        self.tiers = Tiers(durable=str(self.durable), nvme=str(root / "{node}" / "nvme"))
        self.snapshot = make_snapshot(self.durable)
        pointer.point(self.durable, RECIPE.name, self.snapshot.sha256, "a source")
        platform_settings = settings(
            kubeconfig=str(cluster.kubeconfig),
            node_tasks={"resources": {"cpu": "2", "memory": "1Gi"}},
            cluster={"image": "slipway-trainer:test", "namespace": namespace, "resources": {"nvidia.com/gpu": "8"}},
        )
        self.compute = KubernetesCompute(settings=platform_settings["compute"])

    def materialize(self, node: str) -> dg.ExecuteInProcessResult:
        assert keys.NODES.name is not None
        self.instance.add_dynamic_partitions(keys.NODES.name, [node])
        resources = {"tiers": self.tiers, "compute": self.compute}
        return dg.materialize(
            staging_assets(RECIPE),
            partition_key=node,
            instance=self.instance,
            resources=resources,
            raise_on_error=False,
        )

    def pods(self) -> list[KubernetesObject]:
        return [pod for pod in self.cluster.all_of(PODS, self.namespace) if JOB in pod["metadata"]["labels"]]

    def held_source(self) -> Path:
        """The file of a shard, on the durable tier."""
        return shards.shard_path(self.durable, self.snapshot.shards()[1])

    def attempts(self) -> list[str]:
        return sorted(path.name for path in (self.durable / "node-tasks").glob("*/*.json"))


@pytest.fixture
def site(
    tmp_path: Path, simulated: Cluster, namespace: str, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    monkeypatch.setattr(KubernetesCompute, "poll_seconds", 0.1)
    with dg.instance_for_test() as instance:
        yield Site(tmp_path, simulated, namespace, instance)


def in_mid_copy(site: Site, node: str, act: Callable[[], None]) -> threading.Thread:
    """A thread that acts once the node is in the middle of a copy."""

    def wait_and_act() -> None:
        until(lambda: is_in_mid_copy(site.tiers.nvme_path(node)), "a copy to begin")
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def go_on(source: Path, rest: bytes) -> None:
    with open(source, "wb", buffering=0) as pipe:
        pipe.write(rest)


def test_a_node_is_staged_by_a_pod_that_is_pinned_to_it(site: Site):
    staging_pods: list[KubernetesObject] = []
    stack = contextlib.ExitStack()
    rest = stack.enter_context(half_a_shard(site.held_source()))

    def look_and_go_on() -> None:
        staging_pods.extend(site.pods())
        go_on(site.held_source(), rest)
        stack.close()

    looking = in_mid_copy(site, "node-1", look_and_go_on)
    result = site.materialize("node-1")
    looking.join()
    assert result.success
    [pod] = staging_pods
    assert pod["spec"]["nodeName"] == "node-1"
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"]["requests"]
    assert is_staged(site.snapshot.sha256, site.tiers.nvme_path("node-1"))
    [event] = result.asset_materializations_for_node("texts__staged_shards")
    assert event.metadata["copied_shards"].value == 4
    assert receipts.holders(site.durable, site.snapshot.sha256) == {"node-1"}
    until(lambda: not site.pods(), "what belonged to the task to go")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_is_interrupted_leaves_the_pod_to_the_next_one(site: Site):
    with half_a_shard(site.held_source()) as rest:
        in_mid_copy(site, "node-0", interrupt)
        assert not site.materialize("node-0").success
        [pod] = site.pods()
        assert not pod["metadata"].get("deletionTimestamp")
        go_on(site.held_source(), rest)
    assert site.materialize("node-0").success
    assert is_staged(site.snapshot.sha256, site.tiers.nvme_path("node-0"))


def test_a_run_that_is_cancelled_stops_the_pod(site: Site):
    def cancel() -> None:
        [run] = site.instance.get_runs(dg.RunsFilter(statuses=[DagsterRunStatus.STARTED]))
        site.instance.report_run_canceling(run)
        interrupt()

    with half_a_shard(site.held_source()):
        in_mid_copy(site, "node-0", cancel)
        assert not site.materialize("node-0").success
        until(lambda: not site.pods(), "the pod to stop")
    assert not is_staged(site.snapshot.sha256, site.tiers.nvme_path("node-0"))


def test_the_run_fails_with_the_reason_from_the_node(site: Site):
    (site.durable / "snapshots" / f"{site.snapshot.sha256}.json").unlink()
    result = site.materialize("node-0")
    assert not result.success
    [failure] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    error_text = str(failure.step_failure_data.error)
    assert "node-0: " in error_text and "there is no such snapshot" in error_text
    assert receipts.holders(site.durable, site.snapshot.sha256) == frozenset()

"""The sensor of node health on a cluster: what it decides, the cluster's own scheduler obeys."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from slipway.resources.compute.kubernetes import KubernetesCompute
from slipway.resources.fleet.health.standing import Standing
from slipway.resources.home import Home
from slipway.resources.kubernetes.objects import NODES
from slipway.resources.tiers import Tiers
from slipway.sensors.node_health import node_health
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.claims import Token
from slipway.trainer.record.incidents import IncidentRecord
from tests.cli import homes
from tests.conftest import until
from tests.kubernetes.settings import settings
from tests.kubernetes.simulated.cluster import Cluster

LABELS = {"slipway/fleet": "h200"}
NAMES = tuple(f"node-{number}" for number in range(4))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "kubernetes").mkdir()
    with Cluster(tmp_path / "kubernetes", nodes=()) as cluster:
        cluster.add_nodes(*NAMES, labels=LABELS)
        yield cluster


def platform(cluster: Cluster, tmp_path: Path, apply: bool) -> tuple[Tiers, KubernetesCompute]:
    cluster_settings = {"image": "trainer", "node_selector": LABELS}
    compute = settings(kubeconfig=str(cluster.kubeconfig), cluster=cluster_settings, quarantine={"apply": apply})[
        "compute"
    ]
    return Tiers(durable=str(Home(tmp_path).durable), nvme="/mnt/nvme"), KubernetesCompute(settings=compute)


def tick_until(tiers: Tiers, compute: KubernetesCompute, condition: Callable[[], object], what: str) -> None:
    """Evaluate the sensor until the condition holds; at first it finds the mirror of the nodes still empty."""

    def ticked() -> object:
        with (
            dg.DagsterInstance.ephemeral() as instance,
            dg.build_sensor_context(instance, resources={"tiers": tiers, "compute": compute}) as context,
        ):
            node_health(context)
        return condition()

    until(ticked, what)


def corrupted(tmp_path: Path, node: str) -> None:
    """A training that found other weights on a node than its replicas have."""
    store = homes.running(Home(tmp_path), "tiny")
    why = "rank 1 has other weights than its replicas"
    record = IncidentRecord(
        str(Token(1)), causes.CORRUPTION, why, "rolled back", "trainer", time.time(), 40, nodes=(node,)
    )
    assert incidents.note(store.folder, record)


def is_cordoned(cluster: Cluster, name: str) -> bool:
    node = cluster.get(NODES, "", name)
    assert node is not None
    return bool(node["spec"].get("unschedulable"))


def test_a_node_with_severe_evidence_is_cordoned_and_uncordoned_once_a_person_releases_it(
    cluster: Cluster, tmp_path: Path
):
    tiers, compute = platform(cluster, tmp_path, apply=True)
    corrupted(tmp_path, "node-1")
    tick_until(tiers, compute, lambda: is_cordoned(cluster, "node-1"), "the node to be cordoned")
    assert [is_cordoned(cluster, name) for name in NAMES] == [False, True, False, False]
    door = compute.node_health(tiers)
    assert door.register.of("node-1").standing is Standing.QUARANTINED
    door.set_by_hand("node-1", Standing.RELEASED, "ada", "a new board")
    tick_until(tiers, compute, lambda: not is_cordoned(cluster, "node-1"), "the node to be taken back")


def test_a_dry_run_records_the_standing_and_cordons_nothing(cluster: Cluster, tmp_path: Path):
    tiers, compute = platform(cluster, tmp_path, apply=False)
    corrupted(tmp_path, "node-1")
    register = compute.node_health(tiers).register
    tick_until(tiers, compute, lambda: register.of("node-1").number, "the node to be judged")
    record = register.of("node-1")
    assert (record.standing, record.applied) == (Standing.QUARANTINED, False)
    assert not any(is_cordoned(cluster, name) for name in NAMES)

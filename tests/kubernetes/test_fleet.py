"""The fleet of a cluster: nodes that join, leave, fall silent and are tainted, over HTTP."""

from collections.abc import Iterator

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.kubernetes.fleet import EVENTS_NAMESPACE, EVENTS_SECONDS, KubernetesFleet
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster as Settings
from slipway.resources.kubernetes.objects import EVENTS, NODES
from tests.conftest import until
from tests.kubernetes.simulated.cluster import Cluster

LABELS = {"slipway/fleet": "h200"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kubernetes"), nodes=("control-plane",)) as cluster:
        cluster.add_nodes("node-1", "node-0", labels=LABELS)
        yield cluster


@pytest.fixture
def fleet(cluster: Cluster) -> KubernetesFleet:
    return KubernetesFleet(Client(str(cluster.kubeconfig)), Settings(image="trainer", node_selector=LABELS))


def ready(fleet: KubernetesFleet) -> dict[str, bool]:
    return {node.name: node.ready for node in fleet.nodes()}


def test_the_nodes_with_the_labels_are_the_fleet_by_name(fleet: KubernetesFleet):
    assert fleet.scheduled
    assert list(ready(fleet).items()) == [("node-0", True), ("node-1", True)]


def test_nodes_join_and_leave_with_the_cluster(cluster: Cluster, fleet: KubernetesFleet):
    cluster.add_nodes("node-2", labels=LABELS)
    assert "node-2" in ready(fleet)
    cluster.delete(NODES, "", "node-2")
    until(lambda: "node-2" not in ready(fleet), "the node to leave")


def test_a_node_that_was_powered_off_is_lost_until_it_is_back(cluster: Cluster, fleet: KubernetesFleet):
    cluster.power_off("node-1")
    until(lambda: not ready(fleet)["node-1"], "the cluster to see that it is silent")
    [_, off] = fleet.nodes()
    assert off.lost and off.since and "Kubelet stopped posting node status" in off.reason
    cluster.power_on("node-1")
    until(lambda: ready(fleet)["node-1"], "the node to be back")


def test_a_node_with_a_hardware_error_among_its_events_is_lost(cluster: Cluster, fleet: KubernetesFleet):
    event = {
        "metadata": {"name": "node-0.xid", "namespace": EVENTS_NAMESPACE},
        "involvedObject": {"kind": "Node", "name": "node-0"},
        "type": "Warning",
        "reason": "XidError",
        "message": "NVRM: Xid (PCI:0000:3b:00): 95, pid=1234, Uncontained ECC error",
    }
    cluster.create(EVENTS, EVENTS_NAMESPACE, event)
    first, second = fleet.nodes()
    assert first.lost and "Xid 95 (RESET_GPU)" in first.reason and second.ready
    cluster.delete(EVENTS, EVENTS_NAMESPACE, "node-0.xid")
    until(lambda: ready(fleet)["node-0"], "the event to be forgotten")


def test_events_are_requested_once_for_many_looks(cluster: Cluster):
    client, now = Client(str(cluster.kubeconfig)), 1000.0
    fleet = KubernetesFleet(client, Settings(image="trainer", node_selector=LABELS), clock=lambda: now)
    for _ in range(5):
        fleet.nodes()
    assert client.requests["list events"] == 1
    now += EVENTS_SECONDS + 1
    fleet.nodes()
    assert client.requests["list events"] == 2


def test_labels_that_no_node_has_raise_unavailable(fleet: KubernetesFleet):
    nowhere = KubernetesFleet(fleet.reader, Settings(image="trainer", node_selector={"pool": "none"}))
    with pytest.raises(Unavailable, match=r"found no node with the labels \{'pool': 'none'\}; label the nodes"):
        nowhere.nodes()


def test_an_api_server_that_is_away_raises_unavailable(cluster: Cluster, fleet: KubernetesFleet):
    cluster.stop_api()
    with pytest.raises(Unavailable):
        fleet.nodes()
    cluster.start_api()
    assert ready(fleet) == {"node-0": True, "node-1": True}

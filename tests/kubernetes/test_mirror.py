"""The mirror: the present objects of the cluster without a request for each read, and never outdated ones."""

import pickle
from collections.abc import Iterator

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes import mirror as mirror_module
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.mirror import Mirror
from slipway.resources.kubernetes.objects import CONFIG_MAPS, EVENTS, JOB, NODES, PODS, SERVICES, KubernetesObject
from tests.conftest import until
from tests.kubernetes.simulated.cluster import Cluster

MIRRORED = {CONFIG_MAPS: JOB, NODES: "", PODS: JOB}


def order(name: str) -> KubernetesObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {JOB: name}}}


@pytest.fixture
def client(simulated: Cluster, namespace: str) -> Client:
    return Client(str(simulated.kubeconfig), namespace=namespace)


@pytest.fixture
def mirror(client: Client) -> Iterator[Mirror]:
    """A mirror with a client of its own: other clients change the cluster."""
    mirror = Mirror(pickle.loads(pickle.dumps(client)), MIRRORED)
    yield mirror
    mirror.close()


def test_the_first_read_finds_what_exists(client: Client, mirror: Mirror):
    client.create(CONFIG_MAPS, order("one"))
    document = mirror.get(CONFIG_MAPS, "one")
    assert document is not None and document["metadata"]["labels"] == {JOB: "one"}
    assert {node["metadata"]["name"] for node in mirror.list(NODES, {})} == {"node-0", "node-1"}
    assert mirror.list(PODS, {JOB: "one"}) == []


def test_changes_appear_in_the_mirror(client: Client, mirror: Mirror):
    assert mirror.get(CONFIG_MAPS, "one") is None
    client.create(CONFIG_MAPS, order("one"))
    until(lambda: mirror.get(CONFIG_MAPS, "one"), "the order to be heard of")
    client.patch(CONFIG_MAPS, "one", {"metadata": {"annotations": {"slipway/cancelled-at": "1"}}})
    until(lambda: (mirror.get(CONFIG_MAPS, "one") or {})["metadata"].get("annotations"), "the change to be heard of")
    client.delete(CONFIG_MAPS, "one")
    until(lambda: mirror.get(CONFIG_MAPS, "one") is None, "the end to be heard of")


def test_reading_costs_no_request(client: Client, mirror: Mirror):
    mirror.list(PODS, {JOB: "one"})
    mirror.get(CONFIG_MAPS, "one")
    until(lambda: {"watch pods", "watch configmaps"} <= set(mirror.client.requests), "its watches")
    before = mirror.client.requests.copy()
    for number in range(100):
        mirror.get(CONFIG_MAPS, f"job-{number}")
        mirror.list(PODS, {JOB: f"job-{number}"})
    assert mirror.client.requests == before


def test_other_kinds_are_read_from_the_api_server(client: Client, mirror: Mirror):
    client.create(SERVICES, order("one") | {"kind": "Service", "spec": {"clusterIP": "None"}})
    assert mirror.get(SERVICES, "one") is not None
    unlabelled = order("two")
    unlabelled["metadata"]["labels"] = {"another": "label"}
    client.create(CONFIG_MAPS, unlabelled)
    assert [document["metadata"]["name"] for document in mirror.list(CONFIG_MAPS, {"another": "label"})] == ["two"]


def test_one_request_answers_many_equal_questions(client: Client, mirror: Mirror):
    client.requests.clear()
    for _ in range(100):
        mirror.list(EVENTS, {})
    assert client.requests["list events"] < 100 / 10


def test_a_watch_whose_history_is_gone_lists_again(simulated: Cluster, client: Client, mirror: Mirror):
    mirror.get(CONFIG_MAPS, "one")
    simulated.expire_watches()
    client.create(CONFIG_MAPS, order("one"))
    until(lambda: mirror.get(CONFIG_MAPS, "one"), "the order to be heard of")


def test_a_mirror_that_has_heard_nothing_for_too_long_does_not_answer_until_it_hears_again(
    simulated: Cluster, client: Client, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
):
    client.create(CONFIG_MAPS, order("one"))
    assert mirror.get(CONFIG_MAPS, "one") is not None
    simulated.stop_api()
    monkeypatch.setattr(mirror_module, "STALE_SECONDS", 0.0)
    with pytest.raises(Unavailable, match="the mirror of configmaps has received nothing for"):
        mirror.get(CONFIG_MAPS, "one")
    monkeypatch.undo()
    simulated.start_api()
    client.delete(CONFIG_MAPS, "one")
    until(lambda: mirror.get(CONFIG_MAPS, "one") is None, "the mirror to hear again")


def test_a_mirror_of_a_cluster_that_does_not_answer_says_why():
    with pytest.raises(Unavailable, match=r"still empty: .*nowhere"):
        Mirror(Client("/nowhere", timeout_seconds=0.5), MIRRORED).get(CONFIG_MAPS, "one")

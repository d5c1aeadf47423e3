"""Serving on a cluster: its objects follow the records, whoever deletes one by hand."""

import dataclasses
from pathlib import Path

import pytest

from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import SERVICES, of
from slipway.resources.serving import cluster as module
from slipway.resources.serving import objects, wishes
from slipway.resources.serving.cluster import ClusterServing
from slipway.resources.serving.objects import (
    BUDGETS,
    DEPLOYMENTS,
    FRONT,
    INGRESSES,
    LEADER_WORKER_SETS,
    SCALED_OBJECTS,
    SCALERS,
)
from slipway.serving.records import ServedVersion, ServingRecords, SwitchPolicy, SwitchVerdict, service_name
from tests.kubernetes.serving import CLUSTER, QUEUED, SETTINGS
from tests.kubernetes.simulated.cluster import Cluster

MODEL = "slipway-tiny"
FIRST, SECOND = (ServedVersion(digit, digit * 64, f"exports/{digit}", digit * 64) for digit in "12")


@pytest.fixture
def records(tmp_path: Path) -> ServingRecords:
    return ServingRecords(tmp_path / "durable")


@pytest.fixture
def client(simulated: Cluster, namespace: str) -> Client:
    return Client(str(simulated.kubeconfig), namespace=namespace)


@pytest.fixture
def serving(client: Client, tmp_path: Path) -> ClusterServing:
    cluster = dataclasses.replace(CLUSTER, volumes={str(tmp_path / "durable"): "slipway-durable"})
    return ClusterServing(client, cluster, dataclasses.replace(SETTINGS, host=""))


def serve(records: ServingRecords, version: ServedVersion) -> None:
    wishes.serve(records, MODEL, version, SwitchPolicy(), True, "a test", "asked")


def names(client: Client) -> dict[str, set[str]]:
    kinds = (DEPLOYMENTS, SERVICES, SCALERS, BUDGETS)
    return {
        resource.plural: {document["metadata"]["name"] for document in client.list(resource, {})} for resource in kinds
    }


def test_a_version_and_the_front_are_there_once_they_are_wanted(
    client: Client, records: ServingRecords, serving: ClusterServing
):
    serving.ensure(records)
    assert set.union(*names(client).values()) == set()
    serve(records, FIRST)
    for _ in range(2):
        serving.ensure(records)
    names_by_kind, version = names(client), service_name(MODEL, FIRST)
    assert (
        names_by_kind["deployments"]
        == names_by_kind["services"]
        == names_by_kind["poddisruptionbudgets"]
        == {FRONT, version}
    )
    assert names_by_kind["horizontalpodautoscalers"] == {version}


def test_what_is_deleted_by_hand_comes_back(client: Client, records: ServingRecords, serving: ClusterServing):
    serve(records, FIRST)
    serving.ensure(records)
    client.delete(DEPLOYMENTS, service_name(MODEL, FIRST))
    serving.ensure(records)
    assert service_name(MODEL, FIRST) in names(client)["deployments"]


def test_settings_that_change_change_what_is_there_and_nothing_else(
    client: Client, records: ServingRecords, serving: ClusterServing
):
    serve(records, FIRST)
    serving_settings = dataclasses.replace(SETTINGS, host="", node_selector={"pool": "a", "old": "yes"})
    before = ClusterServing(client, serving._cluster, serving_settings)
    before.ensure(records)
    name = service_name(MODEL, FIRST)
    client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 5}})  # as the autoscaler does
    [deployment_before] = [
        deployment for deployment in client.list(DEPLOYMENTS, {}) if deployment["metadata"]["name"] == name
    ]
    before.ensure(records)
    [same] = [deployment for deployment in client.list(DEPLOYMENTS, {}) if deployment["metadata"]["name"] == name]
    assert same["metadata"]["resourceVersion"] == deployment_before["metadata"]["resourceVersion"]
    image = "registry.example/vllm@sha256:4567"
    changed = dataclasses.replace(
        serving_settings, image=image, most_replicas=9, node_selector={"pool": "b"}, priority=""
    )
    ClusterServing(client, serving._cluster, changed).ensure(records)
    [deployment_after] = [
        deployment for deployment in client.list(DEPLOYMENTS, {}) if deployment["metadata"]["name"] == name
    ]
    pod = deployment_after["spec"]["template"]["spec"]
    assert (
        deployment_after["metadata"]["uid"] == deployment_before["metadata"]["uid"]
        and deployment_after["spec"]["replicas"] == 5
    )
    assert pod["containers"][0]["image"] == image and pod["nodeSelector"] == {"pool": "b"}
    assert "priorityClassName" not in pod
    [scaler] = client.list(SCALERS, {})
    assert scaler["spec"]["maxReplicas"] == 9


def test_a_canary_of_groups_of_pods_stands_beside_the_version_before_behind_one_ingress(
    client: Client, records: ServingRecords, serving: ClusterServing, monkeypatch: pytest.MonkeyPatch
):
    large = ClusterServing(client, serving._cluster, dataclasses.replace(SETTINGS, nodes=2, tensor_parallel=8))
    serve(records, FIRST)
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    wishes.serve(records, MODEL, SECOND, SwitchPolicy(share=0.1), True, "a test", "asked")
    large.ensure(records)
    both = {service_name(MODEL, version) for version in (FIRST, SECOND)}
    groups = client.list(LEADER_WORKER_SETS, {})
    assert {group["metadata"]["name"] for group in groups} == both
    assert {group["spec"]["leaderWorkerTemplate"]["size"] for group in groups} == {2}
    names_by_kind = names(client)
    assert names_by_kind["deployments"] == {FRONT} and names_by_kind["horizontalpodautoscalers"] == both
    assert names_by_kind["poddisruptionbudgets"] == {FRONT, *both}
    [ingress] = client.list(INGRESSES, {})
    assert ingress["spec"]["rules"][0]["host"] == SETTINGS.host
    records.judge(records.state(MODEL), SwitchVerdict("back", "slower"))
    monkeypatch.setattr(module, "DRAIN_SECONDS", -1)
    large.ensure(records)
    assert {group["metadata"]["name"] for group in client.list(LEADER_WORKER_SETS, {})} == {service_name(MODEL, FIRST)}


def test_what_settings_of_before_needed_goes_once_its_answers_have_had_their_time(
    client: Client, records: ServingRecords, serving: ClusterServing, monkeypatch: pytest.MonkeyPatch
):
    serve(records, FIRST)
    ClusterServing(client, serving._cluster, dataclasses.replace(SETTINGS, nodes=2, tensor_parallel=8)).ensure(records)
    name = service_name(MODEL, FIRST)
    for _ in range(2):
        serving.ensure(records)
    assert name in names(client)["deployments"]
    assert [group["metadata"]["name"] for group in client.list(LEADER_WORKER_SETS, {})] == [name]
    monkeypatch.setattr(module, "DRAIN_SECONDS", -1)
    serving.ensure(records)
    assert client.list(LEADER_WORKER_SETS, {}) == client.list(INGRESSES, {}) == []
    [scaler] = client.list(SCALERS, {})
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "Deployment"


def test_another_autoscaler_takes_the_place_of_the_one_before_and_keda_keeps_its_own(
    client: Client, records: ServingRecords, serving: ClusterServing
):
    serve(records, FIRST)
    serving.ensure(records)
    name = service_name(MODEL, FIRST)
    queued = ClusterServing(client, serving._cluster, dataclasses.replace(QUEUED, host=""))
    queued.ensure(records)
    assert client.list(SCALERS, {}) == []
    [scaled] = client.list(SCALED_OBJECTS, {})
    metadata = {"name": f"keda-hpa-{name}", "labels": scaled["metadata"]["labels"]}
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": name, "uid": scaled["metadata"]["uid"]}
    metadata["ownerReferences"] = [{**owner, "controller": True}]  # as KEDA makes it, with the labels of its owner
    client.create(SCALERS, of(SCALERS, metadata, objects._by_gpu_use({"kind": "Deployment", "name": name}, QUEUED)))
    queued.ensure(records)
    assert [scaler["metadata"]["name"] for scaler in client.list(SCALERS, {})] == [metadata["name"]]
    serving.ensure(records)
    assert client.list(SCALED_OBJECTS, {}) == []
    assert name in names(client)["horizontalpodautoscalers"]


def test_a_cluster_without_keda_is_not_asked_for_it(
    client: Client, records: ServingRecords, serving: ClusterServing, simulated: Cluster
):
    simulated.uninstall("keda")
    serve(records, FIRST)
    try:
        serving.ensure(records)
    finally:
        simulated.install("keda")
    assert service_name(MODEL, FIRST) in names(client)["horizontalpodautoscalers"]


def test_the_version_before_goes_once_its_answers_have_had_their_time(
    client: Client, records: ServingRecords, serving: ClusterServing, monkeypatch: pytest.MonkeyPatch
):
    serve(records, FIRST)
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    serve(records, SECOND)
    serving.ensure(records)
    both = {FRONT, service_name(MODEL, FIRST), service_name(MODEL, SECOND)}
    assert names(client)["deployments"] == both
    records.judge(records.state(MODEL), SwitchVerdict("all", "it is ready"))
    serving.ensure(records)
    assert names(client)["deployments"] == both
    monkeypatch.setattr(module, "DRAIN_SECONDS", -1)
    serving.ensure(records)
    assert {frozenset(kind_names - {FRONT}) for kind_names in names(client).values()} == {
        frozenset({service_name(MODEL, SECOND)})
    }


def test_a_cluster_whose_settings_say_nothing_of_serving_is_told_so(client: Client, records: ServingRecords):
    with pytest.raises(ValueError, match=r"compute\.serving: found nothing"):
        ClusterServing(client, CLUSTER, None).ensure(records)

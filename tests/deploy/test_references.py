"""Every object that another names exists, or is listed here as the user's to provide."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.deploy.cluster import render
from tests.deploy.dagster_runs import run_job, training_pod
from tests.deploy.rendering import Object, cluster_objects, identity, of_kind, pod_templates, settings, workloads

CONTROL_NAMESPACE, THERE = "slipway", "slipway-training"
BROUGHT = {
    ("Secret", CONTROL_NAMESPACE, "slipway-postgresql"),
    ("Secret", CONTROL_NAMESPACE, "slipway-object-store"),
    ("Secret", THERE, "slipway-object-store"),
    ("Secret", "ceph-csi", "cephfs-slipway"),
}
"""Secrets: the user creates them."""
OF_THE_JOB = ("ConfigMap", THERE, "llama-i1")
"""The order: the launcher creates it."""
KINDS = {
    "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}


def named_by(namespace: str, spec: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The objects that a pod names."""
    yield "ServiceAccount", namespace, spec["serviceAccountName"]
    if spec.get("priorityClassName"):
        yield "PriorityClass", "", spec["priorityClassName"]
    for volume in spec["volumes"]:
        for kind, (what, field) in KINDS.items():
            if kind in volume:
                yield what, namespace, volume[kind][field]


@pytest.fixture(params=render.CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def objects(cluster: str) -> list[Object]:
    return [*cluster_objects(cluster), *workloads(cluster)]


@pytest.fixture
def there(objects: list[Object]) -> set[tuple[str, str, str]]:
    return {identity(document) for document in objects} | BROUGHT | {OF_THE_JOB}


def test_all_objects_that_pods_name_exist(
    cluster: str, objects: list[Object], there: set[tuple[str, str, str]], tmp_path: Path
):
    specs = [(CONTROL_NAMESPACE, template["spec"]) for _, template in pod_templates(objects)]
    specs += [(CONTROL_NAMESPACE, run_job(cluster)["spec"]["template"]["spec"])]
    specs += [(THERE, training_pod(cluster)["spec"])]
    named = {name for namespace, spec in specs for name in named_by(namespace, spec)}
    assert len(named) > 12 and named - there == set()


def test_mounts_are_of_volumes_and_do_not_lie_in_one_another(cluster: str, objects: list[Object]):
    specs = [template["spec"] for _, template in pod_templates(objects)]
    specs += [run_job(cluster)["spec"]["template"]["spec"], training_pod(cluster)["spec"]]
    for spec in specs:
        mounts = spec["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounts} == {volume["name"] for volume in spec["volumes"]}
        paths = [Path(mount["mountPath"]) for mount in mounts]
        assert [path for path in paths if {*path.parents} & {*paths}] == [], "a read-only mount takes no other below it"


def test_claims_name_volumes_of_their_size(objects: list[Object]):
    volumes = of_kind(objects, "PersistentVolume")
    claims = of_kind(objects, "PersistentVolumeClaim").values()
    for claim in claims:
        volume = volumes.pop(claim["spec"]["volumeName"])["spec"]
        assert claim["spec"]["resources"]["requests"]["storage"] == volume["capacity"]["storage"]
        assert claim["spec"]["accessModes"] == volume["accessModes"]
        assert claim["spec"]["storageClassName"] == volume["storageClassName"]
        assert volume["persistentVolumeReclaimPolicy"] == "Retain"
    assert volumes == {}, "each volume is claimed once"


def test_both_namespaces_see_the_same_durable_tier(objects: list[Object]):
    one, other = (
        of_kind(objects, "PersistentVolume")[f"slipway-{name}"]["spec"] for name in ("durable", "training-durable")
    )
    if "csi" in one:
        assert one["csi"]["volumeAttributes"] == other["csi"]["volumeAttributes"]
        assert one["csi"]["volumeHandle"] != other["csi"]["volumeHandle"]
    else:
        assert one == other


def test_services_select_pods_and_their_ports(objects: list[Object]):
    templates = dict(pod_templates(objects))
    for name, service in of_kind(objects, "Service").items():
        labels = templates[name]["metadata"]["labels"]
        ports = {port["name"] for port in templates[name]["spec"]["containers"][0]["ports"]}
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_budgets_and_deployments_select_the_same_pods(objects: list[Object]):
    budgets, deployments = of_kind(objects, "PodDisruptionBudget"), of_kind(objects, "Deployment")
    assert {name: budget["spec"]["selector"] for name, budget in budgets.items()} == {
        name: deployment["spec"]["selector"] for name, deployment in deployments.items()
    }


def test_addresses_in_settings_are_services(cluster: str, objects: list[Object]):
    services = of_kind(objects, "Service")
    [server] = settings(cluster, "instance", "workspace.yaml")["load_from"]
    code = server["grpc_server"]
    assert services[code["host"]]["spec"]["ports"][0]["port"] == code["port"]
    uri = settings(cluster, "platform", "platform.yaml")["tracking"]["uri"]
    assert uri == f"http://slipway-mlflow:{services['slipway-mlflow']['spec']['ports'][0]['port']}"


def test_the_queue_of_the_settings_is_a_queue(cluster: str, objects: list[Object]):
    cluster_settings = settings(cluster, "platform", "platform.yaml")["compute"]["cluster"]
    queues = of_kind(objects, "LocalQueue")
    assert ("queue" in cluster_settings) == bool(queues)
    for name, queue in queues.items():
        assert name.startswith(f"{cluster_settings['namespace']}/")
        assert queue["spec"]["clusterQueue"] in of_kind(objects, "ClusterQueue")
    assert "queue" not in cluster_settings or f"{cluster_settings['namespace']}/{cluster_settings['queue']}" in queues


def test_queues_hand_out_every_resource_that_trainings_ask_for(objects: list[Object]):
    requested = set(settings("h200-32", "platform", "platform.yaml")["compute"]["cluster"]["resources"])
    for queue in of_kind(objects, "ClusterQueue").values():
        [group] = queue["spec"]["resourceGroups"]
        flavours = of_kind(objects, "ResourceFlavor")
        assert requested <= set(group["coveredResources"])
        for flavour in group["flavors"]:
            assert [resource["name"] for resource in flavour["resources"]] == group["coveredResources"]
            assert flavours[flavour["name"]]["spec"]["topologyName"] in of_kind(objects, "Topology")

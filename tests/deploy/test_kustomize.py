"""Each cluster's own objects, and the committed files of all objects, which match their sources."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.cluster import render
from tests import schemas
from tests.deploy.rendering import cluster_objects, of_kind, parsed

needs_kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for kustomize")


@needs_kustomize
@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_the_committed_objects_are_up_to_date(cluster: str):
    made = render.files(cluster)
    assert {path: path.read_text() for path in made} == made, "run `slipway cluster render`"


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_the_committed_workloads_are_the_charts(cluster: str):
    committed = (render.RENDERED / cluster / "workloads.yaml").read_text()
    assert committed.endswith(render.workloads(render.values_of(cluster)))


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_namespaces_admit_restricted_pods_only(cluster: str):
    namespaces = of_kind(cluster_objects(cluster), "Namespace")
    assert {*namespaces} == {"slipway", "slipway-training"}
    for namespace in namespaces.values():
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_trainings_come_before_experiments_and_the_control_plane_before_both(cluster: str):
    classes = of_kind(cluster_objects(cluster), "PriorityClass")
    value = {name.removeprefix("slipway-"): each["value"] for name, each in classes.items()}
    assert value["control"] > value["training"] > value["experiments"]
    assert classes["slipway-experiments"]["preemptionPolicy"] == "Never"
    assert "preemptionPolicy" not in classes["slipway-training"], "it may pre-empt"


def test_experiments_own_nothing_and_give_back_what_they_borrowed():
    queues = of_kind(cluster_objects("h200-32"), "ClusterQueue")
    [flavour] = queues["slipway-experiments"]["spec"]["resourceGroups"][0]["flavors"]
    assert [each["nominalQuota"] for each in flavour["resources"]] == [0, 0, 0, 0]
    assert queues["slipway-training"]["spec"]["preemption"]["reclaimWithinCohort"] == "Any"
    assert len({queue["spec"]["cohortName"] for queue in queues.values()}) == 1


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_the_nodes_own_disks_are_one_volume_without_host_path(cluster: str):
    volume = of_kind(cluster_objects(cluster), "PersistentVolume")["slipway-nvme"]["spec"]
    assert "local" in volume and "hostPath" not in volume
    [term] = volume["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "slipway/fleet", "operator": "Exists"}]


@needs_kustomize
def test_shared_volumes_can_be_on_lustre(tmp_path: Path):
    there = os.path.relpath(render.DEPLOY / "platform", tmp_path.resolve())  # kustomize takes no absolute paths
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{there}/base]\ncomponents: [{there}/components/volumes, {there}/components/lustre]\n"
    )
    objects = parsed(render.cluster_objects(tmp_path))
    assert [problem for found in objects for problem in schemas.problems(found)] == []
    shared = [each["spec"]["csi"] for each in of_kind(objects, "PersistentVolume").values() if "csi" in each["spec"]]
    assert {each["driver"] for each in shared} == {"exa.csi.ddn.com"} and len(shared) == 3


@needs_kustomize
def test_a_broken_overlay_is_refused(tmp_path: Path):
    (tmp_path / "kustomization.yaml").write_text("resource: [nowhere.yaml]\n")
    with pytest.raises(subprocess.CalledProcessError):
        render.cluster_objects(tmp_path)

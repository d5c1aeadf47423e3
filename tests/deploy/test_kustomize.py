"""Each cluster's own objects, and the committed files of all objects, which match their sources."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slipway.deploy.cluster import render
from slipway.trainer.config import profiles
from tests import schemas
from tests.conftest import until
from tests.deploy.rendering import cluster_objects, namespace_of, of_kind, parsed
from tests.deploy.rendering import workloads as render_workloads
from tests.deploy.restricted import violations

EXCEPTIONS = {
    "slipway-nodes": "writes one file of the node's, the limit on locked memory, without which RDMA is not used",
}
"""Namespaces that admit more than restricted pods, each with its reason: at most three."""
needs_kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for kustomize")


@needs_kustomize
@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_the_committed_objects_are_up_to_date(cluster: str):
    expected_files = render.files(cluster)
    assert {path: path.read_text() for path in expected_files} == expected_files, "run `slipway cluster render`"


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_the_committed_workloads_are_the_charts(cluster: str):
    committed = (render.RENDERED / cluster / "workloads.yaml").read_text()
    assert committed.endswith(render.workloads(render.values_of(cluster)))


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_namespaces_admit_restricted_pods_only(cluster: str):
    namespaces = of_kind(cluster_objects(cluster), "Namespace")
    assert {*namespaces} - {*EXCEPTIONS} == {"slipway", "slipway-training"}
    for name in ("slipway", "slipway-training"):
        namespace = namespaces[name]
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_trainings_come_before_experiments_and_the_control_plane_before_both(cluster: str):
    classes = of_kind(cluster_objects(cluster), "PriorityClass")
    value = {name.removeprefix("slipway-"): priority_class["value"] for name, priority_class in classes.items()}
    assert value["control"] > value["training"] > value["experiments"]
    assert classes["slipway-experiments"]["preemptionPolicy"] == "Never"
    assert "preemptionPolicy" not in classes["slipway-training"], "it may pre-empt"


def test_experiments_own_nothing_and_give_back_what_they_borrowed():
    queues = of_kind(cluster_objects("h200-32"), "ClusterQueue")
    [flavour] = queues["slipway-experiments"]["spec"]["resourceGroups"][0]["flavors"]
    assert [resource["nominalQuota"] for resource in flavour["resources"]] == [0, 0, 0, 0]
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
    assert [problem for document in objects for problem in schemas.problems(document)] == []
    shared = [
        volume["spec"]["csi"] for volume in of_kind(objects, "PersistentVolume").values() if "csi" in volume["spec"]
    ]
    assert {csi["driver"] for csi in shared} == {"exa.csi.ddn.com"} and len(shared) == 3


def test_exceptions_from_restricted_are_few_and_alone_in_their_namespace():
    assert len(EXCEPTIONS) <= 3
    objects = cluster_objects("h200-32")
    assert {document["metadata"]["name"] for document in objects if namespace_of(document) == "slipway-nodes"} == {
        "memlock",
        "default-deny",
    }
    assert not [workload for workload in render_workloads("h200-32") if namespace_of(workload) == "slipway-nodes"], (
        "no rights in it"
    )


def test_the_nodes_bootstrap_breaks_restricted_only_by_root_and_by_one_folder_of_the_node():
    [bootstrap] = of_kind(cluster_objects("h200-32"), "DaemonSet").values()
    spec = bootstrap["spec"]["template"]["spec"]
    assert violations(spec) == ["volume drop-in: hostPath", "memlock: may run as root"]
    assert [volume["hostPath"]["path"] for volume in spec["volumes"]] == ["/etc/systemd/system/containerd.service.d"]
    assert spec["automountServiceAccountToken"] is False


def test_the_nodes_bootstrap_writes_the_limit_once_and_ends_when_asked(tmp_path: Path):
    [bootstrap] = of_kind(cluster_objects("h200-32"), "DaemonSet").values()
    program = bootstrap["spec"]["template"]["spec"]["containers"][0]["command"][2]
    file = tmp_path / "50-slipway-memlock.conf"
    for message in ("written", ""):
        script = program.replace("/drop-in", str(tmp_path))
        # Without site packages: a measurement of coverage sets up a handler of SIGTERM too, before the program runs.
        process = subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, text=True)
        until(functools.partial(_is_waiting, file, process.pid), "the bootstrap to wait")
        process.terminate()
        out, _ = process.communicate()
        assert process.returncode == 0 and out.startswith(message) and bool(out) == bool(message)
    assert file.read_text() == "[Service]\nLimitMEMLOCK=infinity\n"
    assert [*tmp_path.iterdir()] == [file]


def _is_waiting(file: Path, pid: int) -> bool:
    """Whether the process has written and has a handler of SIGTERM (15), the last thing that it sets up."""
    if not file.exists():
        return False
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> 14 & 1)


@needs_kustomize
def test_nodes_that_cannot_be_changed_have_trainings_that_start_as_root(tmp_path: Path):
    there = os.path.relpath(render.DEPLOY / "platform", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{there}/base]\ncomponents: [{there}/components/rdma-root, {there}/components/gvisor]\n"
    )
    objects = parsed(render.cluster_objects(tmp_path))
    assert [problem for document in objects for problem in schemas.problems(document)] == []
    enforced = {
        name: namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for name, namespace in of_kind(objects, "Namespace").items()
    }
    assert enforced == {"slipway": "restricted", "slipway-training": "privileged"}
    assert of_kind(objects, "RuntimeClass")["gvisor"]["handler"] == "runsc"


@needs_kustomize
def test_what_operators_are_told_is_accepted_and_says_what_the_settings_ask_for(tmp_path: Path):
    there = os.path.relpath(render.DEPLOY / "platform", tmp_path.resolve())
    names = ("rdma", "multus", "volcano", "time-slicing")
    listed = ", ".join(f"{there}/components/{name}" for name in names)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{there}/base]\ncomponents: [{listed}]\n")
    objects = parsed(render.cluster_objects(tmp_path))
    assert [problem for document in objects for problem in schemas.problems(document)] == []
    maps = of_kind(objects, "ConfigMap")
    [device] = json.loads(maps["kube-system/rdma-devices"]["data"]["config.json"])["configList"]
    assert f"{device['resourcePrefix']}/{device['resourceName']}" in profiles.named("h200-32").resources()
    [network] = of_kind(objects, "NetworkAttachmentDefinition").values()
    assert json.loads(network["spec"]["config"])["name"] == network["metadata"]["name"]
    assert namespace_of(network) == "slipway-training"
    shared = yaml.safe_load(maps["gpu-operator/time-slicing"]["data"]["shared"])["sharing"]["timeSlicing"]
    assert shared["renameByDefault"], "a training that asks for whole GPUs never gets a share of one"
    queues = of_kind(objects, "Queue")
    assert [queues[name]["spec"]["reclaimable"] for name in ("training", "experiments")] == [False, True]


@needs_kustomize
def test_a_broken_overlay_is_refused(tmp_path: Path):
    (tmp_path / "kustomization.yaml").write_text("resource: [nowhere.yaml]\n")
    with pytest.raises(subprocess.CalledProcessError):
        render.cluster_objects(tmp_path)

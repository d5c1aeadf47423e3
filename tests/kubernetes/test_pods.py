"""The command, the environment and the requests of a job's pods."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.kubernetes import pods
from slipway.resources.launchers.protocol import Job
from tests.kubernetes.jobs import LARGE, LONE, RICH, SMALL
from tests.pod_security import violations

pytestmark = pytest.mark.pure

KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"


def template(job: Job = RICH, cluster: Cluster = LARGE) -> dict[str, Any]:
    return pods.template("job-1", job, cluster)


def container(job: Job = RICH, cluster: Cluster = LARGE) -> dict[str, Any]:
    return dict(template(job, cluster)["spec"]["containers"][0])


def environment(job: Job = RICH, cluster: Cluster = LARGE) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in container(job, cluster)["env"]
    }


def test_several_nodes_meet_at_the_jobs_own_store():
    command = pods.command("job-1", RICH)
    assert command[:6] == ["python", "-P", "-m", "slipway.trainer.node.process", "supervisor", "/checkpoints/llama-70b"]
    assert {"--rdzv-endpoint=job-1-store:29500", "--rdzv-id=llama-70b-2", "--nproc-per-node=8"} <= set(command)
    assert command[-1] == "/etc/slipway/config.json"
    script = pods.command("job-1", replace(RICH, command=("python", "train.py")))
    assert script[4] == "agent" and script[-4:] == ["--no-python", "python", "train.py", "/etc/slipway/config.json"]


def test_an_elastic_job_states_its_smallest_number_of_nodes():
    assert "--nnodes=3:4" in pods.command("job-1", RICH)
    assert "--nnodes=4" in pods.command("job-1", replace(RICH, least=4))
    assert "--nnodes=5" in pods.command("job-1", replace(RICH, size=0, least=0))


def test_the_ranks_of_one_node_meet_at_a_store_too():
    assert "--rdzv-endpoint=job-1-store:29500" in pods.command("job-1", replace(LONE, ranks_per_node=2))


def test_a_lone_rank_needs_no_agent():
    script = replace(LONE, command=("python", "train.py"))
    own = ["python", "train.py", "/etc/slipway/config.json"]
    assert pods.command("job-1", script)[3:] == ["slipway.trainer.node.process", "rank", "", *own]
    assert environment(LONE)["WORLD_SIZE"] == "1" and "WORLD_SIZE" not in environment(RICH)


def test_one_of_many_nodes_is_one_rank():
    anywhere = replace(LONE, command=("python", "train.py"), nodes=("a", "b", "c"), size=1)
    assert "rank" in pods.command("job-1", anywhere)
    assert set(template(anywhere)["spec"]["affinity"]) == {"nodeAffinity"}


@pytest.mark.parametrize(
    ("cpu", "ranks", "threads"), [("128", 8, "16"), ("500m", 1, "1"), ("7500m", 2, "3"), ("2", 8, "1"), ("2.5", 1, "2")]
)
def test_the_ranks_share_the_cores_of_the_pod(cpu: str, ranks: int, threads: str):
    job, cluster = replace(RICH, ranks_per_node=ranks), replace(LARGE, resources={"cpu": cpu})
    assert environment(job, cluster)["OMP_NUM_THREADS"] == threads


def test_a_given_number_of_threads_is_left_alone_and_without_cores_none_is_given():
    assert environment(replace(RICH, environment={"OMP_NUM_THREADS": "3"}))["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in environment(RICH, SMALL)


def test_the_job_overrides_the_cluster_but_not_the_place_of_the_pod():
    pretends = {"NCCL_IB_HCA": "mlx5_7", "SLIPWAY_NODE": "other", "SLIPWAY_JOB": "other", "SLIPWAY_ADDRESS": "other"}
    variables = environment(replace(RICH, environment=pretends))
    assert (variables["NCCL_IB_HCA"], variables["NCCL_SOCKET_IFNAME"], variables["SLIPWAY_JOB"]) == (
        "mlx5_7",
        "ib0",
        "llama-70b-2",
    )
    assert variables["SLIPWAY_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert variables["SLIPWAY_ADDRESS"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_requests_and_limits_are_equal_for_gpus_and_rdma():
    amounts = container()["resources"]
    assert amounts["requests"] == amounts["limits"] == LARGE.resources
    assert template()["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "slipway/ib0@ib0,slipway/ib1@ib1"


def test_shared_memory_the_config_and_the_claims_are_mounted():
    mounts = {mount["mountPath"]: mount["name"] for mount in container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in template()["spec"]["volumes"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "128Gi"}
    assert volumes[mounts["/etc/slipway"]]["configMap"]["name"] == "job-1"
    assert volumes[mounts["/nvme"]]["persistentVolumeClaim"] == {"claimName": "nvme"}
    assert set(mounts) == {"/dev/shm", "/etc/slipway", *LARGE.volumes} and set(mounts.values()) == set(volumes)


def test_one_claim_can_be_mounted_twice():
    twice = replace(SMALL, volumes={"/a": "team.claim", "/b": "team.claim"})
    assert (
        len([volume for volume in template(RICH, twice)["spec"]["volumes"] if "persistentVolumeClaim" in volume]) == 1
    )


def test_a_pod_runs_only_on_nodes_of_its_job_and_prefers_those_with_its_data():
    nodes = template()["spec"]["affinity"]["nodeAffinity"]
    [required] = nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    [preferred] = nodes["preferredDuringSchedulingIgnoredDuringExecution"]
    assert required["matchExpressions"][0]["values"] == list(RICH.nodes)
    assert preferred["preference"]["matchExpressions"][0]["values"] == ["gpu-1", "gpu-2"]


def test_a_node_gets_one_pod():
    [apart] = template()["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart == {
        "labelSelector": {"matchLabels": {"slipway/job": "job-1"}},
        "topologyKey": "kubernetes.io/hostname",
    }


def test_pods_prefer_nodes_close_together():
    spec = template()["spec"]
    [close] = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert close["podAffinityTerm"]["topologyKey"] == LARGE.topology and "topologySpreadConstraints" not in spec


def test_kueue_gets_the_topology_where_it_chooses_the_nodes():
    queued = template(RICH, replace(LARGE, queue="team-a"))
    assert queued["metadata"]["annotations"][KUEUE_TOPOLOGY] == LARGE.topology
    assert "podAffinity" not in queued["spec"]["affinity"]


def test_pods_spread_where_the_settings_say_so():
    spec = template(RICH, replace(LARGE, spread="spread"))["spec"]
    [apart] = spec["topologySpreadConstraints"]
    assert (apart["topologyKey"], apart["whenUnsatisfiable"]) == (LARGE.topology, "ScheduleAnyway")
    assert "podAffinity" not in spec["affinity"]


def test_pods_of_a_dead_node_are_given_up_soon_and_spot_nodes_are_tolerated_on_demand():
    tolerated = {toleration["key"]: toleration for toleration in template()["spec"]["tolerations"]}
    assert set(tolerated) == {
        *("nvidia.com/gpu", "example.org/spot"),
        *("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
    }
    assert tolerated["node.kubernetes.io/unreachable"]["tolerationSeconds"] == 30
    assert "example.org/spot" not in str(template(RICH, replace(LARGE, spot=False)))


def test_pods_for_volcano_name_their_pod_group():
    volcano = template(RICH, replace(LARGE, scheduler="volcano"))
    assert volcano["spec"]["schedulerName"] == "volcano"
    assert volcano["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job-1"


def test_kubernetes_accepts_the_labels():
    labels = template(replace(RICH, labels={"training": "Llama 70B", "example.org/team": "a"}))["metadata"]["labels"]
    assert labels["slipway/training"].startswith("Llama-70B--") and labels["example.org/team"] == "a"


def test_a_label_of_the_job_cannot_replace_slipways_own():
    assert template(replace(RICH, labels={"job": "other"}))["metadata"]["labels"]["slipway/job"] == "job-1"


def test_the_recipes_patch_comes_last():
    recipe = {
        "image": "mine:1",
        "spread": "spread",
        "resources": {"cpu": "4"},
        "patch": {"spec": {"priorityClassName": "mine", "schedulerName": "mine"}},
    }
    cluster = dataclasses.replace(LARGE, patch={"spec": {"priorityClassName": "theirs"}}).with_recipe(recipe)
    spec = template(RICH, cluster)["spec"]
    assert (spec["containers"][0]["image"], spec["priorityClassName"]) == ("mine:1", "mine")
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "4"} and "topologySpreadConstraints" in spec


def test_the_pod_security_check_sees_what_is_not_restricted():
    spec = template()["spec"]
    assert violations(spec) == []
    assert violations({**spec, "securityContext": {}, "hostNetwork": True}) == [
        "hostNetwork is set",
        "container trainer runs as root",
        "container trainer has no seccomp profile",
    ]
    root = {**spec["containers"][0], "name": "other", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    assert violations({**spec, "initContainers": [root], "volumes": [{"name": "host", "hostPath": {}}]}) == [
        "volume host is a hostPath",
        "container other may gain privileges",
        "container other keeps capabilities",
        "container other adds capabilities",
    ]

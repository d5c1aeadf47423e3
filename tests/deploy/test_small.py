"""The overlay `small`: the whole demo lane fits on two nodes of 2 CPUs and 4 GiB, and each of its steps starts."""

from collections.abc import Mapping

import pytest

from slipway.assets.execution.pods import HEAVY, NEEDS, requested_amounts, tags
from slipway.deploy.cluster import render
from slipway.recipes.kubernetes import quantity
from slipway.resources.compute.kubernetes import node_task_cluster
from slipway.resources.launchers.kubernetes import store
from slipway.resources.steps import misfit
from tests.deploy.dagster_runs import platform_settings, run_job
from tests.deploy.rendering import cluster_objects, of_kind, pod_templates, workloads

NODE = {"cpu": "1900m", "memory": "3500Mi", "ephemeral-storage": "20Gi"}
"""What pods may take of a node of 2 CPUs and 4 GiB: the rest is the kubelet's, the system's and the DaemonSets'."""
NODES = [{"metadata": {"name": name}, "status": {"allocatable": NODE}} for name in ("a", "b")]
AMOUNTS = ("cpu", "memory", "ephemeral-storage")
Requests = Mapping[str, str]


def control_plane() -> list[Requests]:
    containers = [template["spec"]["containers"][0] for _, template in pod_templates(workloads("small"))]
    return [container["resources"]["requests"] for container in containers]


def run_pod() -> Requests:
    requests: Requests = run_job("small")["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return requests


def steps() -> dict[str, dict[str, dict[str, str]]]:
    settings = platform_settings("small").compute.steps
    return {noun: requested_amounts(tags(noun), settings) for noun, need in NEEDS.items() if need.weight == HEAVY}


def fits(pods: list[Requests]) -> bool:
    """Whether the pods fit on the two nodes together, the largest placed first, each where most is free."""
    free = [{name: quantity(NODE[name]) for name in AMOUNTS} for _ in NODES]
    for pod in sorted(pods, key=lambda requests: -quantity(requests.get("memory", "0"))):
        roomy = max(free, key=lambda node: node["memory"])
        for name in AMOUNTS:
            roomy[name] -= quantity(pod.get(name, "0"))
            if roomy[name] < 0:
                return False
    return True


@pytest.mark.parametrize("noun", sorted(steps()))
def test_every_step_starts_beside_the_control_plane_and_two_runs(noun: str):
    requests = steps()[noun]["requests"]
    assert misfit(requests, NODES) == ""
    assert fits([*control_plane(), run_pod(), run_pod(), requests])


def test_no_step_may_take_more_than_a_node_has():
    for resources in steps().values():
        assert all(quantity(resources["limits"][name]) <= quantity(NODE[name]) for name in AMOUNTS)


def test_a_training_on_both_nodes_runs_while_a_checkpoint_is_evaluated():
    compute = platform_settings("small").compute
    evaluation, trainer = steps()["evaluation"]["requests"], compute.cluster.requested
    staging = node_task_cluster(compute.cluster, compute.node_tasks).requested
    runs = [run_pod(), run_pod(), run_pod()]  # of the training, of the evaluation and of a sensor
    assert fits([*control_plane(), *runs, trainer, trainer, store.REQUESTS, evaluation])
    assert fits([*control_plane(), *runs, staging, staging, evaluation])


def test_a_trainer_has_more_than_a_tenth_of_a_core_to_start_with():
    limits = platform_settings("small").compute.cluster.resources
    assert quantity(limits["cpu"]) >= 1


def test_without_the_overlay_the_steps_of_a_large_cluster_would_be_refused_here():
    requests = requested_amounts(tags("snapshot"), platform_settings("minimal").compute.steps)["requests"]
    assert misfit(requests, NODES).startswith("it asks for cpu 8, memory 32Gi, ephemeral-storage 50Gi, and the largest")


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_quotas_leave_room_for_the_control_plane(cluster: str):
    quotas = [quota["spec"]["hard"] for quota in of_kind(cluster_objects(cluster), "ResourceQuota").values()]
    total = sum(quantity(requests["cpu"]) for requests in control_plane())
    assert all(total < quantity(quota.get("requests.cpu", "1k")) for quota in quotas)

"""The objects that serve on a cluster: those of the files, accepted by Kubernetes, with the values of the reference.

``python -m tests.kubernetes.serving`` writes the files anew.
"""

import dataclasses

import pytest

from slipway.resources.serving import objects
from slipway.serving import draining
from slipway.serving.records import ServedVersion, service_name
from slipway.trainer.base.invalid import Invalid
from tests.kubernetes.serving import CASES, CLUSTER, FILES, SETTINGS, VERSION, of, text
from tests.kubernetes.test_golden import pod_templates
from tests.pod_security import violations
from tests.schemas import problems

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("name", CASES)
def test_the_code_makes_the_objects_of_the_file(name: str):
    assert text(name) == FILES[name].read_text(), "python -m tests.kubernetes.serving writes it anew"


@pytest.mark.parametrize("name", CASES)
def test_two_versions_of_kubernetes_accept_it(name: str):
    assert [problem for document in of(name) for problem in problems(document)] == []


@pytest.mark.parametrize("name", CASES)
def test_every_pod_passes_the_restricted_pod_security_standard(name: str):
    templates = pod_templates(of(name))
    assert templates and [violation for template in templates for violation in violations(template["spec"])] == []


def test_a_version_is_served_with_the_values_of_the_reference():
    deployment, service, scaler, budget = of("serving-version")
    [server] = deployment["spec"]["template"]["spec"]["containers"]
    [puller] = deployment["spec"]["template"]["spec"]["initContainers"]
    assert server["resources"]["limits"] == {"nvidia.com/gpu": "4", "cpu": "32", "memory": "256Gi"}
    for flags in ("--tensor-parallel-size 4", "--max-model-len 8192", "--gpu-memory-utilization 0.90", "--port 8000"):
        assert flags in server["command"][-1]
    timing = [
        (server[kind]["initialDelaySeconds"], server[kind]["periodSeconds"])
        for kind in ("readinessProbe", "livenessProbe")
    ]
    assert timing == [(120, 10), (180, 30)]
    assert puller["command"][puller["command"].index("--manifest") + 1] == VERSION.manifest
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 6)
    windows = [
        scaler["spec"]["behavior"][direction]["stabilizationWindowSeconds"] for direction in ("scaleUp", "scaleDown")
    ]
    assert windows == [120, 300]
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert budget["spec"]["maxUnavailable"] == 1
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]


def test_a_model_may_take_longer_to_load_than_a_server_that_hangs_may_be_silent():
    [server] = of("serving-version")[0]["spec"]["template"]["spec"]["containers"]
    starting, living = server["startupProbe"], server["livenessProbe"]
    assert starting["failureThreshold"] * starting["periodSeconds"] == SETTINGS.start_seconds == 1800
    assert starting["httpGet"] == living["httpGet"] == {"path": "/health", "port": 8000}


@pytest.mark.parametrize("name", ["serving-version", "serving-front"])
def test_a_pod_that_ends_is_forgotten_first_and_then_has_the_time_to_answer_what_is_under_way(name: str):
    pod = of(name)[0]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause > 0 and pause + draining.ANSWERS_SECONDS < pod["terminationGracePeriodSeconds"]
    assert draining.seconds(on_a_cluster=True) == draining.ANSWERS_SECONDS
    if name == "serving-version":
        assert f"--shutdown-timeout {draining.ANSWERS_SECONDS}" in container["command"][-1]


@pytest.mark.parametrize("name", ["serving-version", "serving-front"])
def test_pods_of_one_kind_lie_on_different_nodes_where_there_is_room(name: str):
    deployment = of(name)[0]["spec"]
    [spread] = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"] == deployment["selector"]


def test_answers_of_vllm_name_the_version_first():
    [server] = of("serving-version")[0]["spec"]["template"]["spec"]["containers"]
    assert "--served-model-name slipway-tiny@3 slipway-tiny " in server["command"][-1]


def test_a_model_that_does_not_fit_one_node_is_a_group_of_pods_of_which_the_first_answers():
    group, service, scaler, _ = of("serving-groups")
    assert (group["kind"], group["spec"]["leaderWorkerTemplate"]["size"]) == ("LeaderWorkerSet", 2)
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    leader, worker = (
        group["spec"]["leaderWorkerTemplate"][f"{role}Template"]["spec"]["containers"][0]
        for role in ("leader", "worker")
    )
    assert "readinessProbe" in leader and "readinessProbe" not in worker
    assert worker["command"][-1].endswith("--headless") and "--pipeline-parallel-size 2" in leader["command"][-1]


def test_no_two_groups_lose_a_pod_at_one_time():
    group, *_, budget = of("serving-groups")
    own = group["spec"]["leaderWorkerTemplate"]
    chosen = budget["spec"]["selector"]["matchLabels"].items()
    for role in ("leader", "worker"):
        assert chosen <= own[f"{role}Template"]["metadata"]["labels"].items()


def test_a_worker_that_is_asked_to_end_has_as_long_as_its_leader():
    template = of("serving-groups")[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    *_, port, seconds = template["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert f"--master-port {port} " in template["containers"][0]["command"][-1]
    leaders = draining.FORGOTTEN_SECONDS + draining.ANSWERS_SECONDS
    assert leaders <= float(seconds) < template["terminationGracePeriodSeconds"]


def test_keda_adds_replicas_by_the_queue_of_this_very_version_within_the_same_bounds():
    deployment, _, scaled, _ = of("serving-keda")
    [server] = deployment["spec"]["template"]["spec"]["containers"]
    [trigger] = scaled["spec"]["triggers"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert (scaled["spec"]["minReplicaCount"], scaled["spec"]["maxReplicaCount"]) == (2, 6)
    [by_use] = [document for document in of("serving-version") if document["kind"] == "HorizontalPodAutoscaler"]
    assert scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == by_use["spec"]["behavior"]
    named = server["command"][-1].partition("--served-model-name ")[2].split()[0]
    assert trigger["metadata"]["query"] == f'sum(vllm:num_requests_waiting{{model_name="{named}"}})'
    assert (trigger["type"], trigger["metadata"]["threshold"]) == ("prometheus", "5")


@pytest.mark.parametrize("url", ["", "prometheus:9090"])
def test_keda_without_the_url_of_prometheus_is_refused(url: str):
    with pytest.raises(Invalid, match="expected the URL of Prometheus, as scaler is keda"):
        dataclasses.replace(SETTINGS, scaler="keda", prometheus=url)


def test_a_cluster_without_the_durable_tier_is_told_so():
    with pytest.raises(ValueError, match="found none that holds /elsewhere"):
        objects.of_version("slipway-tiny", VERSION, SETTINGS, CLUSTER, "/elsewhere")


@pytest.mark.parametrize("model", ["slipway-tiny", "A" * 100, "my_model.v2", "modèle"])
def test_the_name_of_a_versions_objects_is_one_that_services_may_have(model: str):
    import re

    name = service_name(model, ServedVersion("1", "ab" * 32, "", ""))
    assert len(name) <= 63 and re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)

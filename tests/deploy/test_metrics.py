"""What Prometheus scrapes: the exporter of the platform, those in trainings' pods, and what finds them."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import HelmError

from slipway.deploy.cluster import render
from slipway.deploy.monitoring import render as monitoring
from slipway.deploy.monitoring import routes
from slipway.resources.launchers.kubernetes import pods as trainers
from tests.deploy.dagster_runs import JOB, platform_settings, training_pod
from tests.deploy.monitoring.tools import said_by
from tests.deploy.rendering import MINIMAL, VALUES, Object, of_kind, parsed, pod_templates, workloads

THERE = "slipway-training"
PEERS = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]


def rendered(**metrics: Any) -> list[Object]:
    return parsed(render.workloads({**MINIMAL, "metrics": {"enabled": True, "from": PEERS, **metrics}}))


def container(pod: Object) -> Object:
    [only_container] = pod["spec"]["containers"]
    return dict(only_container)


def test_without_metrics_nothing_is_exported_and_nothing_is_let_in():
    for case in sorted(set(VALUES) - {"full"}):
        assert [workload for workload in workloads(case) if workload["metadata"]["name"].endswith("-metrics")] == []
        assert "SLIPWAY_METRICS_PORT" not in platform_settings(case).compute.cluster.environment


def test_the_exporter_of_the_platform_only_reads():
    pod = of_kind(rendered(), "Deployment")["slipway-metrics"]["spec"]["template"]
    assert container(pod)["command"] == [
        "python",
        "-P",
        "-m",
        "slipway.cli",
        "metrics",
        "serve",
        "--host=0.0.0.0",
        "--port=9465",
    ]
    assert [mount["name"] for mount in container(pod)["volumeMounts"] if not mount.get("readOnly")] == ["tmp"]
    secrets = {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
    assert secrets == {"slipway-postgresql"}, "of all Secrets, it needs Dagster's database"


def test_each_pod_of_a_training_exports_on_the_port_that_is_let_in():
    [variable] = [
        variable for variable in container(training_pod("full"))["env"] if variable["name"] == "SLIPWAY_METRICS_PORT"
    ]
    policy = of_kind(workloads("full"), "NetworkPolicy")[f"{THERE}/slipway-metrics"]["spec"]
    [port] = [entry["port"] for rule in policy["ingress"] for entry in rule["ports"]]
    [declared] = container(training_pod("full"))["ports"]
    assert declared == {"name": "metrics", "containerPort": port} and variable["value"] == str(port)


def test_a_port_of_ones_own_is_the_port_everywhere():
    values = {
        **MINIMAL,
        "metrics": {"enabled": True, "from": PEERS},
        "platform": {"cluster": {"environment": {"SLIPWAY_METRICS_PORT": "9999"}}},
    }
    objects = parsed(render.workloads(values))
    [rule] = of_kind(objects, "NetworkPolicy")[f"{THERE}/slipway-metrics"]["spec"]["ingress"]
    settings = of_kind(objects, "ConfigMap")["slipway-platform"]["data"]["platform.yaml"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 9999}]
    assert "9466" not in settings and 'SLIPWAY_METRICS_PORT: "9999"' in settings and "containerPort: 9999" in settings


def test_the_operators_monitors_select_what_exports():
    objects = workloads("full")
    service = of_kind(objects, "Service")["slipway-metrics"]
    monitor = of_kind(objects, "ServiceMonitor")["slipway-metrics"]
    of_pods = of_kind(objects, "PodMonitor")[f"{THERE}/slipway-metrics"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == [service["spec"]["ports"][0]["name"]]
    [chosen] = of_pods["spec"]["selector"]["matchExpressions"]
    assert chosen == {"key": "slipway/training", "operator": "Exists"}
    [endpoint] = of_pods["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == container(training_pod("full"))["ports"][0]["name"]
    for monitor_object in (monitor, of_pods):
        assert monitor_object["metadata"]["labels"]["release"] == "prometheus", (
            "by it, the operator's Prometheus selects them"
        )


def test_without_the_operator_no_object_of_its_kinds_is_made():
    assert not {document["kind"] for document in rendered()} & {"ServiceMonitor", "PodMonitor"}


def test_prometheus_accepts_the_scrapes_of_a_cluster(tmp_path: Path):
    config = yaml.safe_load((monitoring.RENDERED / "prometheus-cluster.yaml").read_text())
    for job in config["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs"), "Debian's build of Prometheus lacks this one kind of discovery"
    (tmp_path / "prometheus.json").write_text(json.dumps(config))
    said_by("promtool", "check", "config", tmp_path / "prometheus.json")


def test_a_prometheus_without_the_operator_finds_the_same_pods():
    objects = workloads("full")
    job = dataclasses.replace(JOB, labels={"training": "llama", "incarnation": "1"})
    there = trainers.template("llama-i1", job, platform_settings("full").compute.cluster)
    pods = {**{name: ("slipway", pod) for name, pod in pod_templates(objects)}, "training": (THERE, there)}
    pods_by_job = {
        job["job_name"]: [name for name, (namespace, pod) in pods.items() if is_kept(job, namespace, pod)]
        for job in routes.on_cluster("slipway", THERE)["scrape_configs"]
    }
    assert pods_by_job == {"slipway": ["slipway-metrics"], "training-nodes": ["training"]}


def is_kept(job: Object, namespace: str, pod: Object) -> bool:
    """Whether a scrape keeps a running pod."""
    labels = {f"pod_labelpresent_{re.sub('[^a-z]', '_', name)}": "true" for name in pod["metadata"]["labels"]}
    ports = [port.get("name", "") for port in container(pod).get("ports", [])]
    patterns = {
        relabelling["source_labels"][0].removeprefix("__meta_kubernetes_"): relabelling["regex"]
        for relabelling in job["relabel_configs"]
    }
    of_ports = [{**labels, "pod_phase": "Running", "pod_container_port_name": port} for port in ports]
    named = job["kubernetes_sd_configs"][0]["namespaces"]["names"]
    return namespace in named and any(patterns.items() <= labels_of_port.items() for labels_of_port in of_ports)


def test_metrics_that_nobody_may_scrape_are_refused():
    with pytest.raises(HelmError, match=r"metrics\.from: found nobody, expected the NetworkPolicyPeers"):
        rendered(**{"from": []})

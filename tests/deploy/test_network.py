"""Which pods and services reach one another over the pods' network: the chart's policies with those of two jobs."""

import pytest

from slipway.resources.launchers.kubernetes import network
from slipway.resources.launchers.protocol import Job
from tests.deploy.dagster_runs import platform_settings
from tests.deploy.reachability import End, reaches
from tests.deploy.rendering import VALUES, Object, of_kind, workloads


def component(name: str) -> End:
    return End("slipway", {"slipway/component": name})


WEBSERVER, CODE, DAEMON, RUN, MLFLOW = map(component, ("webserver", "code", "daemon", "run", "mlflow"))
DASK, BUILDER, METRICS, LOGS = map(component, ("dask", "builder", "metrics", "logs"))
JOBS = {name: Job(name, ("python", "-m", "slipway.trainer"), {}, nodes=("a", "b")) for name in ("llama-i1", "other-i7")}
TRAINING = End("slipway-training", {"slipway/job": "llama-i1", "slipway/training": "llama"})
NODE_TASK = End("slipway-training", {"slipway/job": "stage-1", "slipway/task": "stage"})
ITS_STORE = End("slipway-training", {"slipway/job": "llama-i1-store"})
OTHER_TRAINING = End("slipway-training", {"slipway/job": "other-i7"})
FRONT = End("slipway-training", {"slipway/serves": "front"})
VERSION = End("slipway-training", {"slipway/serves": "llama-3"})
STRANGER = End("slipway-training", {"app": "notebook"})
OTHER_TEAM = End("team", {"app": "notebook"})
INGRESS = End("ingress", {"app": "proxy"})
PROMETHEUS = End("monitoring", {"app": "prometheus"})
DNS = End("kube-system", {"k8s-app": "kube-dns"})
DATABASE, STORE, API, LOKI, WORLD = (
    End(address=address) for address in ("10.9.0.7", "10.8.0.7", "10.0.0.1", "10.6.0.7", "203.0.113.9")
)

REACHED = [
    *[(source, DNS, 53, "UDP") for source in (WEBSERVER, CODE, DAEMON, RUN, MLFLOW, TRAINING)],
    (RUN, DNS, 53, "TCP"),
    (INGRESS, WEBSERVER, 3000, "TCP"),
    (INGRESS, MLFLOW, 5000, "TCP"),
    (WEBSERVER, CODE, 4000, "TCP"),
    (DAEMON, CODE, 4000, "TCP"),
    (CODE, MLFLOW, 5000, "TCP"),
    (RUN, MLFLOW, 5000, "TCP"),
    *[(source, DATABASE, 6432, "TCP") for source in (WEBSERVER, CODE, DAEMON, RUN, MLFLOW)],
    *[(source, API, 6443, "TCP") for source in (WEBSERVER, CODE, DAEMON, RUN)],
    *[(source, STORE, 443, "TCP") for source in (CODE, RUN, MLFLOW, TRAINING)],
    *[(source, DASK, 8786, "TCP") for source in (RUN, BUILDER)],
    *[(source, BUILDER, 8787, "TCP") for source in (DASK, BUILDER)],
    (BUILDER, STORE, 443, "TCP"),
    (BUILDER, DNS, 53, "UDP"),
    (PROMETHEUS, METRICS, 9465, "TCP"),
    (PROMETHEUS, TRAINING, 9466, "TCP"),
    (METRICS, DATABASE, 6432, "TCP"),
    (METRICS, API, 6443, "TCP"),
    (METRICS, DNS, 53, "UDP"),
    (LOGS, LOKI, 443, "TCP"),
    (LOGS, API, 6443, "TCP"),
    (LOGS, DNS, 53, "UDP"),
    (TRAINING, TRAINING, 29500, "TCP"),
    (TRAINING, TRAINING, 41234, "TCP"),
    (TRAINING, ITS_STORE, 29500, "TCP"),
    (ITS_STORE, TRAINING, 41234, "TCP"),
    (OTHER_TRAINING, DNS, 53, "UDP"),
    (FRONT, VERSION, 8000, "TCP"),
    (INGRESS, FRONT, 8000, "TCP"),
    (VERSION, VERSION, 6379, "TCP"),
]
NOT_REACHED = [
    *[(source, WORLD, 443, "TCP") for source in (WEBSERVER, CODE, DAEMON, RUN, MLFLOW, TRAINING, STRANGER)],
    *[(OTHER_TEAM, target, port, "TCP") for target, port in ((WEBSERVER, 3000), (CODE, 4000), (MLFLOW, 5000))],
    (OTHER_TEAM, TRAINING, 29500, "TCP"),
    *[(TRAINING, OTHER_TRAINING, port, "TCP") for port in (22, 8080, 29500, 41234)],
    *[(OTHER_TRAINING, TRAINING, port, "TCP") for port in (29500, 41234)],
    (OTHER_TRAINING, ITS_STORE, 29500, "TCP"),
    (ITS_STORE, OTHER_TRAINING, 29500, "TCP"),
    *[(TRAINING, target, 8000, "TCP") for target in (FRONT, VERSION)],
    (FRONT, TRAINING, 29500, "TCP"),
    (VERSION, WORLD, 443, "TCP"),
    (INGRESS, VERSION, 8000, "TCP"),
    (STRANGER, STORE, 443, "TCP"),
    (STRANGER, TRAINING, 29500, "TCP"),
    (TRAINING, STRANGER, 29500, "TCP"),
    *[(TRAINING, target, port, "TCP") for target, port in ((WEBSERVER, 3000), (CODE, 4000), (MLFLOW, 5000))],
    (TRAINING, DATABASE, 6432, "TCP"),
    (TRAINING, API, 6443, "TCP"),
    (MLFLOW, API, 6443, "TCP"),
    (MLFLOW, CODE, 4000, "TCP"),
    (RUN, CODE, 4000, "TCP"),
    (RUN, WEBSERVER, 3000, "TCP"),
    (CODE, TRAINING, 29500, "TCP"),
    (WEBSERVER, STORE, 443, "TCP"),
    (DAEMON, STORE, 443, "TCP"),
    (INGRESS, CODE, 4000, "TCP"),
    (RUN, DATABASE, 22, "TCP"),
    *[
        (source, DASK, 8786, "TCP")
        for source in (WEBSERVER, CODE, DAEMON, MLFLOW, TRAINING, STRANGER, OTHER_TEAM, INGRESS)
    ],
    *[(source, BUILDER, 8787, "TCP") for source in (RUN, CODE, TRAINING, OTHER_TEAM)],
    *[(BUILDER, target, port, "TCP") for target, port in ((DATABASE, 6432), (API, 6443), (MLFLOW, 5000), (WORLD, 443))],
    *[
        (LOGS, target, port, "TCP")
        for target, port in ((DATABASE, 6432), (STORE, 443), (WEBSERVER, 3000), (WORLD, 443))
    ],
    *[(source, LOKI, 443, "TCP") for source in (WEBSERVER, DAEMON, MLFLOW, TRAINING)],
    (INGRESS, LOGS, 12345, "TCP"),
    *[(source, METRICS, 9465, "TCP") for source in (WEBSERVER, CODE, RUN, TRAINING, STRANGER, OTHER_TEAM, INGRESS)],
    *[(source, TRAINING, 9466, "TCP") for source in (METRICS, RUN, OTHER_TRAINING, STRANGER, OTHER_TEAM, INGRESS)],
    *[
        (PROMETHEUS, target, port, "TCP")
        for target, port in ((WEBSERVER, 3000), (MLFLOW, 5000), (CODE, 4000), (FRONT, 8000))
    ],
    *[(PROMETHEUS, target, port, "TCP") for target, port in ((METRICS, 22), (TRAINING, 29500), (NODE_TASK, 9466))],
    *[
        (METRICS, target, port, "TCP")
        for target, port in ((STORE, 443), (MLFLOW, 5000), (TRAINING, 9466), (WORLD, 443))
    ],
    *[(DASK, target, port, "TCP") for target, port in ((DATABASE, 6432), (API, 6443), (STORE, 443), (WORLD, 443))],
]


def policies(case: str) -> list[Object]:
    """The chart's, and those that the launcher makes with its settings for two jobs."""
    cluster = platform_settings(case).compute.cluster
    of_jobs = [part for name, job in JOBS.items() for part in network.parts(name, job, cluster)]
    for part in of_jobs:
        part["metadata"]["namespace"] = cluster.namespace
    return [*of_kind(workloads(case), "NetworkPolicy").values(), *of_jobs]


@pytest.mark.parametrize(("source", "target", "port", "protocol"), REACHED)
def test_the_connection_is_allowed(source: End, target: End, port: int, protocol: str):
    assert reaches(policies("full"), source, target, port, protocol)


@pytest.mark.parametrize(("source", "target", "port", "protocol"), NOT_REACHED)
def test_the_connection_is_denied(source: End, target: End, port: int, protocol: str):
    assert not reaches(policies("full"), source, target, port, protocol)


def test_no_connection_comes_in_from_outside_by_default():
    assert not reaches(policies("minimal"), INGRESS, WEBSERVER, 3000)
    assert not reaches(policies("minimal"), INGRESS, MLFLOW, 5000)


def test_without_a_store_trainings_reach_nothing_outside():
    assert not reaches(policies("minimal"), TRAINING, STORE, 443)


def test_by_default_services_outside_are_at_private_addresses():
    private = End(address="10.1.2.3")
    assert reaches(policies("minimal"), RUN, private, 5432) and not reaches(policies("minimal"), RUN, private, 22)
    assert not reaches(policies("minimal"), RUN, WORLD, 5432)


@pytest.mark.parametrize("case", [case for case in VALUES if case != "without"])
def test_no_rule_means_everybody_by_naming_nobody(case: str):
    for policy in policies(case):
        rules = [*policy["spec"].get("egress", ()), *policy["spec"].get("ingress", ())]
        assert all(rule.get("to") or rule.get("from") for rule in rules), policy["metadata"]["name"]


def test_the_matrix_has_enough_of_both_kinds():
    assert len(REACHED) >= 30 and len(NOT_REACHED) >= 30


@pytest.mark.parametrize("case", [case for case in VALUES if case != "without"])
def test_both_namespaces_deny_by_default(case: str):
    denying = [
        policy["metadata"]["namespace"]
        for policy in policies(case)
        if policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ]
    assert sorted(denying) == ["slipway", "slipway-training"]


def test_policies_can_be_left_to_others():
    assert policies("without") == []

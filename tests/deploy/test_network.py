"""Which pods and services reach one another over the pods' network."""

import pytest

from tests.deploy.reachability import End, reaches
from tests.deploy.rendering import VALUES, of_kind, workloads


def component(name: str) -> End:
    return End("slipway", {"slipway/component": name})


WEBSERVER, CODE, DAEMON, RUN, MLFLOW = map(component, ("webserver", "code", "daemon", "run", "mlflow"))
TRAINING = End("slipway-training", {"slipway/job": "llama-i1"})
STRANGER = End("slipway-training", {"app": "notebook"})
OTHER_TEAM = End("team", {"app": "notebook"})
INGRESS = End("ingress", {"app": "proxy"})
DNS = End("kube-system", {"k8s-app": "kube-dns"})
DATABASE, STORE, API, WORLD = (End(address=each) for each in ("10.9.0.7", "10.8.0.7", "10.0.0.1", "203.0.113.9"))

REACHED = [
    *[(each, DNS, 53, "UDP") for each in (WEBSERVER, CODE, DAEMON, RUN, MLFLOW, TRAINING)],
    (RUN, DNS, 53, "TCP"),
    (INGRESS, WEBSERVER, 3000, "TCP"),
    (INGRESS, MLFLOW, 5000, "TCP"),
    (WEBSERVER, CODE, 4000, "TCP"),
    (DAEMON, CODE, 4000, "TCP"),
    (CODE, MLFLOW, 5000, "TCP"),
    (RUN, MLFLOW, 5000, "TCP"),
    *[(each, DATABASE, 6432, "TCP") for each in (WEBSERVER, CODE, DAEMON, RUN, MLFLOW)],
    *[(each, API, 6443, "TCP") for each in (WEBSERVER, CODE, DAEMON, RUN)],
    *[(each, STORE, 443, "TCP") for each in (CODE, RUN, MLFLOW, TRAINING)],
    (TRAINING, TRAINING, 29500, "TCP"),
    (TRAINING, TRAINING, 41234, "TCP"),
]
NOT_REACHED = [
    *[(each, WORLD, 443, "TCP") for each in (WEBSERVER, CODE, DAEMON, RUN, MLFLOW, TRAINING, STRANGER)],
    *[(OTHER_TEAM, each, port, "TCP") for each, port in ((WEBSERVER, 3000), (CODE, 4000), (MLFLOW, 5000))],
    (OTHER_TEAM, TRAINING, 29500, "TCP"),
    (STRANGER, TRAINING, 29500, "TCP"),
    (TRAINING, STRANGER, 29500, "TCP"),
    *[(TRAINING, each, port, "TCP") for each, port in ((WEBSERVER, 3000), (CODE, 4000), (MLFLOW, 5000))],
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
]


def policies(case: str):
    return [*of_kind(workloads(case), "NetworkPolicy").values()]


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


def test_without_peers_the_ports_still_limit():
    assert reaches(policies("minimal"), RUN, WORLD, 5432) and not reaches(policies("minimal"), RUN, WORLD, 22)


@pytest.mark.parametrize("case", [case for case in VALUES if case != "without"])
def test_both_namespaces_deny_by_default(case: str):
    denying = [
        each["metadata"]["namespace"]
        for each in policies(case)
        if each["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ]
    assert sorted(denying) == ["slipway", "slipway-training"]


def test_policies_can_be_left_to_others():
    assert policies("without") == []

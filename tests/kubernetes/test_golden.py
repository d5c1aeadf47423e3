"""The golden files: the code makes exactly their objects, and two versions of Kubernetes accept them.

``python -m tests.kubernetes.golden`` writes them anew.
"""

import dataclasses
import random
from typing import Any

import pytest

from slipway.resources.kubernetes.objects import JOB, KubernetesObject
from slipway.resources.launchers.kubernetes import store
from slipway.resources.launchers.kubernetes.workloads import KINDS
from tests.kubernetes.golden import CASES, FILES, objects, text
from tests.pod_interfaces import interfaces
from tests.pod_security import violations
from tests.schemas import problems

pytestmark = pytest.mark.pure


def pod_templates(value: Any) -> list[KubernetesObject]:
    """The pod templates anywhere in an object."""
    if isinstance(value, list):
        return [template for item in value for template in pod_templates(item)]
    if not isinstance(value, dict):
        return []
    return [value] if "containers" in value.get("spec", {}) else pod_templates(list(value.values()))


@pytest.mark.parametrize("name", CASES)
def test_the_code_makes_the_objects_of_the_file(name: str):
    assert text(name) == FILES[name].read_text(), "python -m tests.kubernetes.golden writes it anew"


def test_there_is_no_file_without_a_case():
    folder = next(iter(FILES.values())).parent
    assert sorted(folder.glob("*.yaml")) == sorted(FILES.values())


@pytest.mark.parametrize("name", CASES)
def test_two_versions_of_kubernetes_accept_it(name: str):
    assert [problem for document in objects(name) for problem in problems(document)] == []


@pytest.mark.parametrize("name", CASES)
def test_every_pod_passes_the_restricted_pod_security_standard(name: str):
    templates = pod_templates(objects(name))
    assert templates
    for template in templates:
        assert violations(template["spec"]) == []


@pytest.mark.parametrize("name", CASES)
def test_every_object_has_the_name_of_the_job_and_its_label(name: str):
    documents = objects(name)
    labels = [document["metadata"]["labels"] for document in (*documents, *pod_templates(documents))]
    job = documents[-1]["metadata"]["name"]
    assert {label[JOB] for label in labels} <= {job, store.name_of(job)}
    assert all(document["metadata"]["name"] == document["metadata"]["labels"][JOB] for document in documents)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_in_which_a_job_is_described_makes_no_difference(kind: str):
    _, job, cluster = CASES[f"{kind}-rich"]
    shuffled = dataclasses.replace(job, environment=shuffle(job.environment), labels=shuffle(job.labels))
    disordered = dataclasses.replace(
        cluster, volumes=shuffle(cluster.volumes), environment=shuffle(cluster.environment)
    )
    assert KINDS[kind].objects("a", shuffled, disordered) == KINDS[kind].objects("a", job, cluster)


def shuffle(mapping: Any) -> dict[str, str]:
    return dict(random.sample(list(mapping.items()), len(mapping)))


@pytest.mark.parametrize("name", CASES)
def test_every_pod_has_the_interfaces_that_its_variables_name(name: str):
    for template in pod_templates(objects(name)):
        variables = {pair["name"]: pair.get("value") for pair in template["spec"]["containers"][0].get("env", ())}
        named = {variables[key] for key in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if key in variables}
        assert named <= interfaces(template)

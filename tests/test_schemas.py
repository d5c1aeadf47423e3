"""The check of Kubernetes objects: what a cluster would refuse, or drop in silence, is a problem for both versions."""

import copy
import re
from typing import Any

import pytest

from tests.schemas import VERSIONS, check, problems, strict

pytestmark = pytest.mark.pure

SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "job-1"},
    "spec": {"clusterIP": "None", "selector": {"slipway/job": "job-1"}},
}
QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "training", "labels": {"team": "a"}},
    "spec": {"clusterQueue": "gpus"},
}
POD_GROUP: dict[str, Any] = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "job-1"},
    "spec": {"minMember": 4, "minResources": {"nvidia.com/gpu": "32"}},
}


@pytest.mark.parametrize("valid", [SERVICE, QUEUE, POD_GROUP], ids=lambda valid: valid["kind"])
def test_what_is_right_has_no_problem_and_an_unknown_field_has_one_for_each_version(valid):
    check(valid)
    wrong = copy.deepcopy(valid)
    wrong["spec"]["clusterIp"] = "None"
    schema_problems = problems(wrong)
    assert len(schema_problems) == len(VERSIONS) and all(
        "'clusterIp' was unexpected" in problem for problem in schema_problems
    )


def test_a_problem_names_version_object_and_field():
    wrong = copy.deepcopy(SERVICE)
    wrong["spec"]["publishNotReadyAddresses"] = "yes"
    assert problems(wrong)[0].startswith("Kubernetes 1.33: Service job-1: spec.publishNotReadyAddresses: 'yes' is not")
    with pytest.raises(ValueError, match=re.escape("Kubernetes 1.37: Service job-1: spec.publishNotReadyAddresses:")):
        check(wrong)


def test_metadata_of_custom_resources_are_checked_too():
    wrong = copy.deepcopy(QUEUE)
    wrong["metadata"]["labels"]["team"] = 1
    assert "metadata.labels.team: 1 is not" in problems(wrong)[0]


@pytest.mark.parametrize("kind", [("batch.volcano.sh/v1alpha1", "Job"), ("v2", "Service"), ("", "")])
def test_a_kind_without_a_schema_is_a_problem(kind: tuple[str, str]):
    schema_problems = problems({"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "it"}})
    assert schema_problems == [
        f"Kubernetes {version}: {kind[1]} it: no schema of {kind[0]} {kind[1]}" for version in VERSIONS
    ]


def test_a_kind_that_one_version_lacks_is_a_problem_for_that_version():
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "it"},
    }
    assert [problem for problem in problems(policy) if "no schema" in problem] == [
        "Kubernetes 1.33: MutatingAdmissionPolicy it: "
        "no schema of admissionregistration.k8s.io/v1 MutatingAdmissionPolicy"
    ]


def test_a_nameless_object_is_a_problem_unless_the_cluster_makes_its_name():
    assert "metadata.name: is missing" in problems({**SERVICE, "metadata": {}})[0]
    check({**SERVICE, "metadata": {"generateName": "job-"}})


def test_the_strict_form_of_a_schema_refuses_what_an_api_server_would_prune():
    fields = {"a": {"type": "string", "default": "x"}, "b": {"type": "object"}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "required": ["a", "b"], "properties": {**fields, "free": free}}
    assert strict(schema) == {
        "type": "object",
        "required": ["b"],
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "object", "additionalProperties": False},
            "free": {"type": "object"},
        },
        "additionalProperties": False,
    }

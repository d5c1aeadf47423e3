"""A kind of workload is described once: what is watched, allowed, accepted and said follows from its class."""

import re
from pathlib import Path

import pytest

from slipway.deploy.cluster import values
from slipway.resources.kubernetes import answers
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOB, PODS, SERVICES, KubernetesObject, Resource
from slipway.resources.launchers.kubernetes import access
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload, WorkloadReading
from slipway.resources.launchers.protocol import Job, JobState
from tests.kubernetes.jobs import RICH, SMALL

GANGS = Resource("gangs.example.org", "v1", "Gang", "gangs", operator="Gangs")
PLANS = Resource("gangs.example.org", "v1", "GangPlan", "gangplans", operator="Gangs")
DOCUMENT = Path(__file__).parents[2] / "docs" / "kubernetes.md"


class GangKind(Workload):
    """A kind that no cluster has."""

    name = "gang"
    resource = GANGS
    parts = (PLANS,)

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        return [{"kind": "GangPlan"}, {"kind": "Gang"}]

    def read(self, main: KubernetesObject) -> WorkloadReading:
        return WorkloadReading(JobState.PENDING)


WITH_GANGS = (*access.ALL, GangKind())


def test_a_new_kind_is_watched():
    assert access.mirrored_kinds(WITH_GANGS) == {**access.mirrored_kinds(), GANGS: JOB}


def test_a_new_kind_comes_with_the_rights_to_make_its_objects():
    new = [rule for rule in access.rights(WITH_GANGS) if rule not in access.rights()]
    assert [rule["apiGroups"] for rule in new] == [["gangs.example.org"]] * 2
    assert [rule["resources"] for rule in new] == [["gangplans"], ["gangs"]]
    assert {tuple(rule["verbs"]) for rule in new} == {access.MAKE}


def test_a_new_kind_knows_where_the_api_has_its_objects():
    kind = GangKind()
    assert [kind.resource_of(part) for part in kind.objects("job-1", RICH, SMALL)] == [PLANS, GANGS]


def test_the_message_about_a_kind_that_is_not_served_says_what_installs_it():
    assert "the cluster has no gangs.gangs.example.org of version v1: install Gangs" in answers.missing(GANGS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_makes_nothing_that_it_does_not_declare(kind: Workload):
    resources = [kind.resource_of(part) for part in kind.objects("job-1", RICH, SMALL)]
    assert resources == [SERVICES, PODS, *kind.parts, kind.resource]
    assert set(resources) <= {*access.created_kinds(), PODS}


def test_the_values_of_the_chart_accept_every_kind():
    assert values.Chart.model_json_schema()["$defs"]["PlatformValues"]["properties"]["launcher"]["enum"] == list(KINDS)


def test_the_documents_name_every_kind():
    table = DOCUMENT.read_text().partition("## Launchers")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.M) == list(KINDS)

"""The rights of every account: the whole list. Everything else is forbidden."""

import pytest

from slipway.deploy.cluster import render
from slipway.resources.launchers.kubernetes import access
from slipway.resources.serving.objects import KINDS
from tests.deploy.rendering import VALUES, Object, of_kind, workloads

CONTROL, THERE, EVERYWHERE = render.NAMESPACE, "slipway-training", "*"
MAKE_AND_WATCH = "create delete get list watch"
LOOK = "get list watch"
LAUNCHER = {
    "configmaps": f"{MAKE_AND_WATCH} patch",
    **{
        f"{object_kind.group}/{object_kind.plural}".lstrip("/"): MAKE_AND_WATCH
        for object_kind in access.created_kinds()
    },
    "services": f"{MAKE_AND_WATCH} patch",
    "pods": MAKE_AND_WATCH,
    "pods/log": "get",
    "events": "list watch",
    **{
        f"{object_kind.group}/{object_kind.plural}": "create delete list patch"
        for object_kind in KINDS
        if object_kind.group
    },
    "kueue.x-k8s.io/localqueues": LOOK,
    "kueue.x-k8s.io/workloads": LOOK,
}
RUN_LAUNCHER = {
    "batch/jobs": "create delete get list",
    "batch/jobs/status": "get",
    "pods": "delete get list",
    "pods/log": "get",
    "events": "list",
}
FLEET = {"nodes": LOOK}
CORDONING = {"nodes": f"{LOOK} patch"}
"""Where `platform.quarantine.apply` is true."""
NODE_EVENTS = {"events": "list watch"}
ALLOWED = {
    ("webserver", CONTROL): {"batch/jobs": "delete", "pods": "delete list"},
    ("daemon", CONTROL): RUN_LAUNCHER,
    ("code", CONTROL): {"batch/jobs/status": "get"},
    ("code", THERE): LAUNCHER,
    ("code", EVERYWHERE): FLEET,
    ("code", "default"): NODE_EVENTS,
    ("run", CONTROL): RUN_LAUNCHER,
    ("run", THERE): LAUNCHER,
    ("run", EVERYWHERE): FLEET,
    ("run", "default"): NODE_EVENTS,
}
"""By account and namespace: each resource with the verbs."""


def granted(objects: list[Object]) -> dict[tuple[str, str], dict[str, str]]:
    """The rights that the bindings grant, by account and namespace."""
    roles = {
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]): document
        for document in objects
    }
    rights: dict[tuple[str, str], dict[str, str]] = {}
    for binding in objects:
        if not binding["kind"].endswith("RoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace")
        role = roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            account = ("ServiceAccount", subject["namespace"], subject["name"])
            assert account in roles, "the binding's account is the chart's own"
            rights_of_account = rights.setdefault(
                (subject["name"].removeprefix("slipway-"), namespace or EVERYWHERE), {}
            )
            for resource, verbs in _verbs(role).items():
                rights_of_account[resource] = " ".join(
                    sorted({*rights_of_account.get(resource, "").split(), *verbs.split()})
                )
    return rights


def _verbs(role: Object) -> dict[str, str]:
    return {
        f"{group}/{resource}".lstrip("/"): " ".join(sorted(rule["verbs"]))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("case", VALUES)
def test_accounts_have_the_rights_of_the_list_and_no_others(case: str):
    more = {
        ("code", EVERYWHERE): CORDONING,
        ("metrics", EVERYWHERE): FLEET,
        ("metrics", "default"): NODE_EVENTS,
        ("logs", THERE): {"pods": LOOK, "pods/log": "get"},
    }
    allowed = {**ALLOWED, **(more if case == "full" else {})}
    expected = {
        who: {what: " ".join(sorted(verbs.split())) for what, verbs in may.items()} for who, may in allowed.items()
    }
    assert granted(workloads(case)) == expected


def test_the_chart_has_the_rights_of_every_kind_of_workload():
    assert render.RIGHTS.read_text() == render.rights_template(), "run `slipway cluster render`"


@pytest.mark.parametrize("case", VALUES)
def test_no_role_has_wildcards_secrets_or_ways_into_pods(case: str):
    objects = workloads(case)
    roles = [*of_kind(objects, "Role").values(), *of_kind(objects, "ClusterRole").values()]
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"secrets", "pods/exec", "pods/attach", "pods/portforward"} & {*rule["resources"]}
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & {*rule["verbs"]}


def test_the_role_for_cordoning_is_bound_to_no_account_where_nodes_are_not_taken_out_of_service():
    objects = workloads("minimal")
    assert _verbs(of_kind(objects, "ClusterRole")["slipway-cordon"]) == {"nodes": "list patch"}
    assert "slipway-cordon" in of_kind(objects, "ServiceAccount")
    assert ("cordon", EVERYWHERE) not in granted(objects)


def test_trainings_and_mlflow_have_no_rights():
    accounts = of_kind(workloads("full"), "ServiceAccount")
    assert f"{THERE}/slipway-trainer" in accounts
    assert not {"trainer", "mlflow"} & {account for account, _ in granted(workloads("full"))}


def test_no_account_mounts_its_token_by_itself():
    accounts = of_kind(workloads("full"), "ServiceAccount").values()
    assert [account["metadata"]["name"] for account in accounts if account["automountServiceAccountToken"]] == []

"""Patches of pod templates merge as `kubectl patch --type strategic` does; a wrong patch is refused with its field."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from slipway.resources.launchers.kubernetes import patch, pods
from tests.kubernetes.jobs import LARGE, RICH
from tests.schemas import VERSIONS, problems

pytestmark = pytest.mark.pure

TEMPLATE = pods.template("job-1", RICH, LARGE)


def patched(**spec: Any) -> dict[str, Any]:
    """The spec of the template with a patch in it."""
    return dict(patch.apply(TEMPLATE, {"spec": spec}, "patch")["spec"])


def refusal(wrong: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as refused:
        patch.apply(TEMPLATE, wrong, "placement.kubernetes.patch")
    return str(refused.value)


def test_an_empty_patch_changes_nothing():
    assert patch.apply(TEMPLATE, {}, "patch") == TEMPLATE


def test_mappings_merge_and_null_deletes():
    spec = patched(nodeSelector={"zone": "b"}, securityContext={"fsGroup": None})
    assert spec["nodeSelector"] == {"slipway/fleet": "h200", "zone": "b"}
    assert "fsGroup" not in spec["securityContext"] and spec["securityContext"]["runAsNonRoot"]


def test_containers_and_their_environment_merge_by_name():
    before = TEMPLATE["spec"]["containers"][0]
    more = {"name": "trainer", "env": [{"name": "NCCL_IB_HCA", "value": "mlx5_0"}]}
    [trainer] = patched(containers=[more])["containers"]
    values = {variable["name"]: variable.get("value") for variable in trainer["env"]}
    assert values["NCCL_IB_HCA"] == "mlx5_0" and len(trainer["env"]) == len(before["env"])
    assert {**trainer, "env": None} == {**before, "env": None}


def test_new_items_of_a_merged_list_come_last():
    spec = patched(
        containers=[{"name": "trainer", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
        initContainers=[{"name": "stage", "image": "stage:1"}],
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    assert spec["volumes"] == [*TEMPLATE["spec"]["volumes"], {"name": "scratch", "emptyDir": {}}]
    assert spec["containers"][0]["volumeMounts"][-1]["mountPath"] == "/scratch"
    assert spec["initContainers"] == [{"name": "stage", "image": "stage:1"}]


def test_an_item_can_be_taken_out_of_a_merged_list_and_a_mapping_replaced():
    shared = {"name": "shared-memory", "$patch": "delete"}
    spec = patched(volumes=[shared], securityContext={"$patch": "replace", "runAsNonRoot": True})
    assert [volume["name"] for volume in spec["volumes"]] == [
        "config",
        "claim-checkpoints",
        "claim-lustre",
        "claim-nvme",
    ]
    assert spec["securityContext"] == {"runAsNonRoot": True}


def test_other_lists_are_replaced_whole():
    assert patched(tolerations=[{"operator": "Exists"}])["tolerations"] == [{"operator": "Exists"}]


def test_the_template_and_the_patch_stay_as_they_are():
    before, change = copy.deepcopy(TEMPLATE), {"spec": {"tolerations": [{"operator": "Exists"}]}}
    patched = patch.apply(TEMPLATE, change, "patch")
    patched["spec"]["tolerations"].append({})
    patched["spec"]["containers"][0]["env"].append({})
    assert before == TEMPLATE and change == {"spec": {"tolerations": [{"operator": "Exists"}]}}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sepc": {}}, ".sepc: found an unknown field, expected one of metadata, spec"),
    ({"spec": {"hostNetwork": "yes"}}, ".spec.hostNetwork: found 'yes', expected true or false"),
    ({"spec": {"tolerations": {"key": "a"}}}, ".spec.tolerations: found {'key': 'a'}, expected a list"),
    ({"spec": {"nodeSelector": ["a"]}}, ".spec.nodeSelector: found ['a'], expected a mapping"),
    ({"spec": {"nodeSelector": {"a": 1}}}, ".spec.nodeSelector.a: found 1, expected text"),
    ({"spec": {"priority": True}}, ".spec.priority: found True, expected a whole number"),
    (
        {"spec": {"hostAliases": [{"hostnames": ["a"], "ip": None}]}},
        ".spec.hostAliases[0].ip: found nothing, expected a value",
    ),
    (
        {"spec": {"volumes": [{"emptyDir": {}}]}},
        ".spec.volumes[0]: found {'emptyDir': {}}, expected a mapping with the field name",
    ),
    (
        {"spec": {"volumes": {"$patch": "delete"}}},
        ".spec.volumes: found $patch: 'delete', expected merge or replace; only items of a list",
    ),
    ({"spec": {"restartPolicy": "Always"}}, ".spec.restartPolicy: expected 'Never': only the next incarnation"),
    (
        {"spec": {"containers": [{"name": "trainer", "$patch": "delete"}]}},
        ".spec.containers: expected a container 'trainer'",
    ),
    ({"metadata": {"labels": {"slipway/job": "other"}}}, ".metadata.labels.slipway/job: expected 'job-1'"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message.split(":")[0] for _, message in WRONG])
def test_a_wrong_patch_is_refused_by_its_field(wrong: dict[str, Any], message: str):
    assert refusal(wrong).startswith(f"placement.kubernetes.patch{message}")


def test_all_problems_are_reported_at_once():
    both = refusal({"spec": {"nodeSelectors": {}, "hostNetwork": "yes"}})
    assert "spec.nodeSelectors" in both and "spec.hostNetwork" in both


def test_amounts_may_be_numbers():
    more = {"name": "trainer", "resources": {"limits": {"cpu": 64}}}
    assert patched(containers=[more])["containers"][0]["resources"]["limits"]["cpu"] == 64


def test_the_message_says_whose_patch_does_not_fit():
    with pytest.raises(ValueError, match=r"the cluster's patch\.spec\.nodeSelectors"):
        pods.template("job-1", RICH, replace(LARGE, patch={"spec": {"nodeSelectors": {}}}))


def lists_below(definitions: dict[str, Any], name: str, visited: set[str]) -> Iterator[tuple[str, str | None]]:
    """The lists of mappings below a definition, each with the API's merge key."""
    if name in visited:
        return
    visited.add(name)
    for field, schema in definitions[name].get("properties", {}).items():
        references = [schema.get("$ref"), schema.get("items", {}).get("$ref")]
        if schema.get("items", {}).get("$ref"):
            strategy = schema.get("x-kubernetes-patch-strategy", "")
            yield field, schema.get("x-kubernetes-patch-merge-key") if "merge" in strategy else None
        for reference in filter(None, references):
            yield from lists_below(definitions, reference.rpartition("/")[2], visited)


def test_lists_merge_by_the_keys_of_the_api():
    lists: set[tuple[str, str | None]] = set()
    for version in VERSIONS:
        package = resources.files("kubernetes_validate") / f"kubernetes-json-schema/v{version}.0-local-strict"
        definitions = json.loads((package / "_definitions.json").read_text())["$defs"]
        lists |= set(lists_below(definitions, "io.k8s.api.core.v1.PodTemplateSpec", set()))
    assert {(field, key) for field, key in lists if key} == set(patch.MERGE_KEYS.items())
    assert {field for field, key in lists if not key}.isdisjoint(patch.MERGE_KEYS)


def test_a_claim_of_dynamic_resource_allocation_takes_the_place_of_a_count_of_gpus():
    cluster = replace(LARGE, resources={name: amount for name, amount in LARGE.resources.items() if "gpu" not in name})
    claim = {"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}
    trainer = {"name": "trainer", "resources": {"claims": [{"name": "gpus"}]}}
    template = patch.apply(
        pods.template("job-1", RICH, cluster), {"spec": {"resourceClaims": [claim], "containers": [trainer]}}, "patch"
    )
    [trainer_container] = template["spec"]["containers"]
    assert trainer_container["resources"]["claims"] == [{"name": "gpus"}] and trainer_container["resources"]["limits"]
    assert not [name for name in trainer_container["resources"]["limits"] if "gpu" in name]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "job-1-0"}}
    assert problems(pod) == []

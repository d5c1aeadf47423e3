"""A patch of a pod template, merged as `kubectl patch --type strategic` would and checked before a cluster sees it.

Mappings merge, null deletes; lists merge by the key that Kubernetes merges them by, others are replaced whole;
``$patch: delete`` takes an item out of a merged list, ``$patch: replace`` replaces a mapping instead of merging it.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resources.kubernetes.objects import CONTAINER, JOB, Object

MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "evictionResponders": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The lists below a pod template that merge, by the field that tells their items apart (`patchMergeKey` of the API)."""
DIRECTIVE = "$patch"


def apply(template: Object, patch: Mapping[str, Any], whose: str) -> Object:
    """The template with the patch in it; `whose` says in messages where the patch stands.

    Raises ValueError naming each field that is not what a pod template may hold, or that a patch must leave alone.
    """
    if not patch:
        return template
    from resources.kubernetes import fields

    merged = _merge(copy.deepcopy(template), patch, whose)
    problems = fields.problems_of_template(merged, whose) or list(_problems_for_us(template, merged, whose))
    if problems:
        raise ValueError("\n".join(problems))
    return merged


def _problems_for_us(before: Object, after: Object, whose: str) -> Iterator[str]:
    """What would leave a job that its launcher neither finds nor understands."""
    label = before["metadata"]["labels"][JOB]
    if after.get("metadata", {}).get("labels", {}).get(JOB) != label:
        yield f"{whose}.metadata.labels.{JOB}: must stay {label!r}: the job's pods are found by it"
    if CONTAINER not in [each["name"] for each in after["spec"]["containers"]]:
        yield f"{whose}.spec.containers: the container {CONTAINER!r} must stay: it is the job"
    if after["spec"].get("restartPolicy") != "Never":
        yield f"{whose}.spec.restartPolicy: must stay 'Never': the next incarnation is what restarts a job"


def _merge(there: Any, patch: Mapping[str, Any], where: str) -> Object:
    """The mapping `there` (anything else counts as empty) with `patch` in it."""
    directive = patch.get(DIRECTIVE, "merge")
    if directive not in ("merge", "replace"):
        raise ValueError(f"{where}: {DIRECTIVE}: {directive!r}: only items of a list can be deleted so")
    merged = dict(there) if isinstance(there, Mapping) and directive == "merge" else {}
    for field, value in patch.items():
        path = f"{where}.{field}"
        if field == DIRECTIVE:
            continue
        if value is None:
            merged.pop(field, None)
        elif isinstance(value, Mapping):
            merged[field] = _merge(merged.get(field), value, path)
        elif isinstance(value, list) and field in MERGE_KEYS:
            merged[field] = _merge_list(merged.get(field, []), value, MERGE_KEYS[field], path)
        else:
            merged[field] = copy.deepcopy(value)
    return merged


def _merge_list(there: Sequence[Any], patch: Sequence[Any], key: str, where: str) -> list[Any]:
    """Items of the same `key` merged in place, new ones behind."""
    merged = {item[key]: item for item in there}
    for place, item in enumerate(patch):
        path = f"{where}[{place}]"
        if not isinstance(item, Mapping) or key not in item:
            raise ValueError(f"{path}: found {item!r}; the items of this list are mappings with `{key}`")
        if item.get(DIRECTIVE) == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = _merge(merged.get(item[key]), item, path)
    return list(merged.values())

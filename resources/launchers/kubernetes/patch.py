"""A patch of a pod template, merged as `kubectl patch --type strategic` does, and checked before it reaches a cluster.

Mappings merge, and null deletes a field. The lists in `MERGE_KEYS` merge item by item; other lists are replaced whole.
``$patch: delete`` removes an item of a merged list, ``$patch: replace`` replaces a mapping instead of merging it.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.resources.kubernetes.objects import CONTAINER, JOB, KubernetesObject

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
"""The lists of a pod template that merge, each with the field that identifies an item (`patchMergeKey` of the API)."""
DIRECTIVE = "$patch"


def apply(template: KubernetesObject, patch: Mapping[str, Any], whose: str) -> KubernetesObject:
    """The template with the patch merged into it; messages begin with `whose`, the location of the patch.

    Raises a ValueError that names each field which a pod template does not have, or which a patch must not change.
    """
    if not patch:
        return template
    from slipway.resources.launchers.kubernetes import fields

    merged = _merge(copy.deepcopy(template), patch, whose)
    problems = fields.problems_of_template(merged, whose) or list(_problems_for_us(template, merged, whose))
    if problems:
        raise ValueError("\n".join(problems))
    return merged


def _problems_for_us(before: KubernetesObject, after: KubernetesObject, whose: str) -> Iterator[str]:
    """Problems with changes that would keep the launcher from finding or reading the job."""
    label = before["metadata"]["labels"][JOB]
    if after.get("metadata", {}).get("labels", {}).get(JOB) != label:
        yield f"{whose}.metadata.labels.{JOB}: expected {label!r}: the launcher finds the job's pods by it"
    if CONTAINER not in [container["name"] for container in after["spec"]["containers"]]:
        yield f"{whose}.spec.containers: expected a container {CONTAINER!r}: it runs the job"
    if after["spec"].get("restartPolicy") != "Never":
        yield f"{whose}.spec.restartPolicy: expected 'Never': only the next incarnation restarts a job"


def _merge(there: Any, patch: Mapping[str, Any], where: str) -> KubernetesObject:
    """The mapping `there` with `patch` merged into it. If `there` is not a mapping, it counts as empty."""
    directive = patch.get(DIRECTIVE, "merge")
    if directive not in ("merge", "replace"):
        raise ValueError(
            f"{where}: found {DIRECTIVE}: {directive!r}, expected merge or replace; only items of a list can be deleted"
        )
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
    """The list `there` with `patch` merged into it: items with the same `key` are merged in place; new items follow."""
    merged = {item[key]: item for item in there}
    for index, item in enumerate(patch):
        path = f"{where}[{index}]"
        if not isinstance(item, Mapping) or key not in item:
            raise ValueError(f"{path}: found {item!r}, expected a mapping with the field {key}")
        if item.get(DIRECTIVE) == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = _merge(merged.get(item[key]), item, path)
    return list(merged.values())

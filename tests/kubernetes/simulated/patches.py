"""The effect of a PATCH on an object: JSON patch, merge patch (RFC 7386) and strategic merge patch."""

import copy
from typing import Any

import jsonpatch

from tests.kubernetes.simulated import errors
from tests.kubernetes.simulated.kinds import Object, Resource

MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "port",
    "taints": None,
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The `patchMergeKey` of lists in k8s.io/api; taints, as most lists, are replaced."""
SETS = {"finalizers"}
"""Lists whose values are added."""
JSON, MERGE, STRATEGIC = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def patched(resource: Resource, object: Object, content_type: str, patch: Any) -> Object:
    """The object after the patch. Raises 415 for a content type that the kind does not take."""
    is_custom = "." in resource.group and not resource.group.endswith(".k8s.io")
    if content_type == JSON:
        return _by_operations(object, patch)
    if content_type == MERGE:
        merged: Object = merge(object, patch)
        return merged
    if content_type == STRATEGIC and not is_custom:
        return _strategic(object, patch)
    raise errors.unsupported_media_type(", ".join([JSON, MERGE] if is_custom else [JSON, MERGE, STRATEGIC]))


def merge(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(value) if isinstance(value, dict) else {}
    for key, changed in patch.items():
        if changed is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), changed)
    return merged


def _by_operations(object: Object, patch: Any) -> Object:
    try:
        result: Object = jsonpatch.apply_patch(object, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise errors.KubernetesError(422, "Invalid", message, {}) from error
    return result


def _strategic(value: Object, patch: Object) -> Object:
    merged = dict(value)
    for key, changed in patch.items():
        if changed is None:
            merged.pop(key, None)
        elif isinstance(changed, dict):
            merged[key] = _strategic(merged.get(key) or {}, changed)
        elif isinstance(changed, list) and MERGE_KEYS.get(key):
            merged[key] = _lists(merged.get(key) or [], changed, str(MERGE_KEYS[key]))
        elif isinstance(changed, list) and key in SETS:
            merged[key] = list(dict.fromkeys([*(merged.get(key) or []), *changed]))
        else:
            merged[key] = copy.deepcopy(changed)
    return merged


def _lists(items: list[Object], changes: list[Object], by: str) -> list[Object]:
    """The items, those that the patch names changed, deleted or added."""
    merged = {item.get(by): item for item in items}
    for change in changes:
        if change.get("$patch") == "delete":
            merged.pop(change.get(by), None)
        else:
            merged[change.get(by)] = _strategic(merged.get(change.get(by)) or {}, change)
    return list(merged.values())

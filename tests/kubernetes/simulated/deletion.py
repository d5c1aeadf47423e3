"""The effect of a DELETE on an object: grace, finalizers and propagation (k8s.io/apiserver/pkg/registry/rest)."""

import copy

from tests.kubernetes.simulated import clock, errors
from tests.kubernetes.simulated.kinds import JOBS, PODS, Object, Resource

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
"""Finalizers that the garbage collector works off."""


def check_preconditions(resource: Resource, object: Object, options: Object) -> None:
    metadata, preconditions = object["metadata"], options.get("preconditions") or {}
    guesses = {"uid": ("UID", "deleted and then recreated"), "resourceVersion": ("ResourceVersion", "modified")}
    for field, (label, guess) in guesses.items():
        if preconditions.get(field, metadata[field]) != metadata[field]:
            differs = f"({preconditions[field]}) does not match the {label} in record ({metadata[field]})"
            why = f"the {label} in the precondition {differs}. The object might have been {guess}"
            raise errors.conflict(resource, metadata["name"], why)


def marked(resource: Resource, object: Object, options: Object) -> Object:
    """The object, marked as deleted. A later deletion may shorten the grace and never prolongs it."""
    after = copy.deepcopy(object)
    metadata, grace = after["metadata"], _grace(resource, object, options)
    before = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata or (before is not None and grace < before):
        metadata["deletionTimestamp"] = clock.now(grace)
        metadata["deletionGracePeriodSeconds"] = grace
    finalizers = [finalizer for finalizer in metadata.get("finalizers", []) if finalizer not in (FOREGROUND, ORPHAN)]
    metadata["finalizers"] = finalizers + _propagation(resource, options)
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    return after


def is_over(object: Object) -> bool:
    """Whether a deleted object can be removed now."""
    metadata = object["metadata"]
    is_due = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
    return is_due and not metadata.get("finalizers") and not _is_full(object)


def _is_full(namespace: Object) -> bool:
    """A deleted namespace stays until the namespace controller has emptied it."""
    return namespace["kind"] == "Namespace" and bool(namespace["spec"].get("finalizers"))


def _propagation(resource: Resource, options: Object) -> list[str]:
    """By default, Jobs of batch/v1 orphan their pods, and other kinds propagate in the background (job strategy.go)."""
    default = "Orphan" if resource == JOBS else "Background"
    policy = options.get("propagationPolicy") or default
    return {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])


def _grace(resource: Resource, object: Object, options: Object) -> int:
    """The grace in seconds: only pods with running processes get one (podStrategy.CheckGracefulDelete)."""
    if resource != PODS:
        return 0
    if not object["spec"].get("nodeName") or object["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.get("gracePeriodSeconds")
    return int(object["spec"]["terminationGracePeriodSeconds"] if grace is None else grace)

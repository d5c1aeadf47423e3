"""Pods and their conditions, as controllers and kubelets read and write them."""

from collections.abc import Iterator

from tests.kubernetes.simulated import clock
from tests.kubernetes.simulated.kinds import PODS, Object
from tests.kubernetes.simulated.registry import Registry


def condition(object: Object, type: str) -> Object | None:
    conditions = object.get("status", {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == type), None)


def is_true(object: Object, type: str) -> bool:
    entry = condition(object, type)
    return entry is not None and entry["status"] == "True"


def set_condition(object: Object, type: str, status: str, reason: str = "", message: str = "") -> None:
    """Write a condition into the object's status; its time changes when its status does."""
    conditions: list[Object] = object.setdefault("status", {}).setdefault("conditions", [])
    entry = condition(object, type)
    since = entry["lastTransitionTime"] if entry and entry["status"] == status else clock.now()
    why = {"reason": reason, "message": message} if reason else {}
    new = {"type": type, "status": status, "lastTransitionTime": since, **why}
    if entry:
        conditions[conditions.index(entry)] = new
    else:
        conditions.append(new)


def phase(pod: Object) -> str:
    return str(pod["status"]["phase"])


def is_finished(pod: Object) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_terminating(pod: Object) -> bool:
    """Whether a pod is deleted and has not ended yet (controller.IsPodTerminating)."""
    return "deletionTimestamp" in pod["metadata"] and not is_finished(pod)


def is_active(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and not is_finished(pod)


def container_status(pod: Object, container: str) -> Object | None:
    return next((status for status in container_statuses(pod) if status["name"] == container), None)


def container_statuses(pod: Object) -> Iterator[Object]:
    yield from pod["status"].get("containerStatuses") or ()
    yield from pod["status"].get("initContainerStatuses") or ()


def disrupt(registry: Registry, pod: Object, reason: str, message: str) -> Object:
    """Write onto a pod that something other than itself ends it."""
    return registry.change(PODS, pod, lambda it: set_condition(it, "DisruptionTarget", "True", reason, message))


def controller_of(object: Object) -> Object | None:
    """The owner reference of what controls the object."""
    return next(
        (reference for reference in object["metadata"].get("ownerReferences") or () if reference.get("controller")),
        None,
    )

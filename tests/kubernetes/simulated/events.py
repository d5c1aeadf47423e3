"""Events about objects, repeated ones counted (k8s.io/client-go/tools/record)."""

from tests.kubernetes.simulated import clock
from tests.kubernetes.simulated.kinds import EVENTS, Object
from tests.kubernetes.simulated.registry import Registry


class Events:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written: dict[tuple[str, str, str], Object] = {}

    def normal(self, object: Object, reason: str, message: str, component: str) -> None:
        self._tell("Normal", object, reason, message, component)

    def warning(self, object: Object, reason: str, message: str, component: str) -> None:
        self._tell("Warning", object, reason, message, component)

    def _tell(self, type: str, object: Object, reason: str, message: str, component: str) -> None:
        metadata = object["metadata"]
        key = (metadata["uid"], reason, message)
        before = self._written.get(key)
        namespace = metadata.get("namespace", "default")
        if before and self._registry.store.get(EVENTS, namespace, before["metadata"]["name"]):
            self._registry.change(EVENTS, before, _again)
            return
        about = {"apiVersion": object["apiVersion"], "kind": object["kind"], "namespace": metadata.get("namespace", "")}
        event: Object = {
            "metadata": {"generateName": f"{metadata['name'][:50]}."},
            "involvedObject": {**about, "name": metadata["name"], "uid": metadata["uid"]},
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": clock.now(),
            "lastTimestamp": clock.now(),
            "count": 1,
        }
        self._written[key] = self._registry.create(EVENTS, namespace, event)


def _again(event: Object) -> None:
    event["count"] += 1
    event["lastTimestamp"] = clock.now()

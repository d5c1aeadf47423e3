"""A pod's `log` and `eviction` (k8s.io/kubernetes/pkg/registry/core/pod)."""

from collections.abc import Callable

from tests.kubernetes.simulated import errors, pods
from tests.kubernetes.simulated.kinds import PODS, Object
from tests.kubernetes.simulated.registry import Registry
from tests.kubernetes.simulated.request import ApiRequest


def log(registry: Registry, request: ApiRequest, read: Callable[[Object, str], bytes]) -> bytes:
    """The end of a container's output (`tailLines`), or the start of that end (`limitBytes`)."""
    pod = registry.get(PODS, request.namespace, request.name)
    container = _container(pod, request.parameters.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return b""
    _must_have_started(pod, container)
    text = read(pod, container)
    if lines := request.parameters.get("tailLines"):
        text = b"".join(text.splitlines(keepends=True)[-int(lines) :]) if int(lines) else b""
    return text[: int(request.parameters["limitBytes"])] if "limitBytes" in request.parameters else text


def evict(registry: Registry, request: ApiRequest) -> Object:
    """The Eviction API (policy/v1)."""
    return evicted(registry, request.namespace, request.name, (request.body or {}).get("deleteOptions"))


def evicted(registry: Registry, namespace: str, name: str, options: Object | None) -> Object:
    """A condition that says why, then a deletion."""
    pod = registry.get(PODS, namespace, name)
    pods.disrupt(registry, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
    registry.delete(PODS, namespace, name, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _container(pod: Object, container_name: str) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    names = [container["name"] for container in [*spec.get("initContainers", ()), *spec["containers"]]]
    if container_name and container_name not in names:
        raise errors.bad_request(f"container {container_name} is not valid for pod {name}")
    if not container_name and len(spec["containers"]) > 1:
        listed = " ".join(container["name"] for container in spec["containers"])
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return container_name or str(spec["containers"][0]["name"])


def _must_have_started(pod: Object, container: str) -> None:
    status = pods.container_status(pod, container)
    waiting = (status or {"state": {"waiting": {"reason": "ContainerCreating"}}})["state"].get("waiting")
    if waiting:
        why = f"is waiting to start: {waiting['reason']}"
        raise errors.bad_request(f'container "{container}" in pod "{pod["metadata"]["name"]}" {why}')

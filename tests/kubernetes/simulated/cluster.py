"""The whole cluster: a test session starts and stops it, its tests break and repair it.

One thread with a loop of its own holds the API server, the controllers and the kubelets; all methods may be called
from any other.
"""

import asyncio
import collections
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import yaml

from tests.kubernetes.simulated.control_plane import ControlPlane
from tests.kubernetes.simulated.kinds import (
    ADD_ONS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    WORKLOADS,
    Object,
    Resource,
)

Answer = TypeVar("Answer")
CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


class Cluster:
    """`folder` takes the kubeconfig, and logs and volumes of the pods."""

    def __init__(self, folder: Path, nodes: tuple[str, ...] = ("node-0", "node-1")) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._first_nodes = nodes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="simulated-kubernetes", daemon=True)
        self._plane: ControlPlane

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises the first error of a controller, which then did not act like Kubernetes'."""
        self._await(self._plane.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if error is None and self._plane.manager.errors:
            raise self._plane.manager.errors[0]

    async def _start(self) -> None:
        self._plane = ControlPlane(self.folder)
        await self._plane.start_api()
        for namespace in ("default", "kube-system"):
            self._plane.manager.registry.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        for name in self._first_nodes:
            self._plane.add_node(name, CAPACITY, {}, with_kubelet=True)
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self._plane.port)))

    # Objects.

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._do(lambda: self._plane.store.get(resource, namespace, name))

    def all_of(self, resource: Resource, namespace: str = "") -> list[Object]:
        return self._do(lambda: self._plane.store.all_of(resource, namespace))

    def requests(self) -> "collections.Counter[tuple[str, str]]":
        """The number of requests so far, by verb and plural name; the difference of two counts those in between."""
        return self._do(lambda: self._plane.api.requests_by.copy())

    def create(self, resource: Resource, namespace: str, object: Object) -> Object:
        """Create an object as an administrator. Not counted as a request."""
        return self._do(lambda: self._plane.manager.registry.create(resource, namespace, object))

    def change(self, resource: Resource, namespace: str, name: str, how: Callable[[Object], object]) -> Object:
        """Edit an object in place, status included."""
        registry = self._plane.manager.registry
        return self._do(lambda: registry.change(resource, registry.get(resource, namespace, name), how))

    def delete(self, resource: Resource, namespace: str, name: str, **options: object) -> None:
        """Delete by hand, like ``kubectl delete`` in the background. `options` are DeleteOptions."""
        chosen = {"propagationPolicy": "Background", **options}
        self._do(lambda: self._plane.manager.registry.delete(resource, namespace, name, chosen))

    # Nodes.

    def add_nodes(
        self,
        *names: str,
        labels: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
        with_kubelet: bool = True,
    ) -> None:
        """Without a kubelet, pods count as running and no process starts: for thousands of nodes."""

        def add() -> None:
            for name in names:
                self._plane.add_node(name, {**CAPACITY, **(capacity or {})}, labels or {}, with_kubelet)

        self._do(add)

    def power_off(self, node: str) -> None:
        """Power the node off; return when all its processes are dead."""
        self._await(self._plane.power_off(node))

    def power_on(self, node: str) -> None:
        self._do(lambda: self._plane.reconnect(node))

    def partition(self, node: str) -> None:
        """Cut the node's kubelet off; the processes there go on."""
        self._do(lambda: self._plane.silence(node))

    def heal(self, node: str) -> None:
        self._do(lambda: self._plane.reconnect(node))

    def taint(self, node: str, key: str, effect: str, value: str = "") -> None:
        taint = {"key": key, "effect": effect, "value": value}
        self.change(NODES, "", node, lambda it: it["spec"].setdefault("taints", []).append(taint))

    def run_out_of_memory(self, namespace: str, pod: str, container: str) -> None:
        self._do(lambda: self._plane.worker(namespace, pod).run_out_of_memory(container))

    def lose_image(self, image: str) -> None:
        """From now on, neither a node nor a registry has the image."""
        self._do(lambda: self._plane.machine.missing_images.add(image))

    def find_image(self, image: str) -> None:
        self._do(lambda: self._plane.machine.missing_images.discard(image))

    # The API server.

    def stop_api(self) -> None:
        """Refuse connections. Objects stay, processes go on, controllers wait."""
        self._await(self._plane.stop_api())

    def start_api(self) -> None:
        self._await(self._plane.start_api())

    def restart_api(self) -> None:
        self.stop_api()
        self.start_api()

    def expire_watches(self) -> None:
        """Forget all history: every watch ends, and a watch from an earlier revision gets 410."""
        self._do(lambda: self._plane.watches.expire())

    def forbid(self, verb: str, plural: str) -> None:
        """Answer 403; `plural` may be ``pods/log``."""
        self._do(lambda: self._plane.api.forbidden.add((verb, plural)))

    def allow(self) -> None:
        """Allow everything again."""
        self._do(lambda: self._plane.api.forbidden.clear())

    def uninstall(self, project: str) -> None:
        """Serve none of the kinds that a project's CustomResourceDefinitions define."""
        self._do(lambda: self._plane.api.drop(*ADD_ONS[project]))

    def install(self, project: str) -> None:
        self._do(lambda: self._plane.api.serve(*ADD_ONS[project]))

    # Jobs and pods.

    def evict(self, namespace: str, pod: str) -> None:
        """Evict by the Eviction API, like ``kubectl drain``."""
        self._do(lambda: self._plane.evict(namespace, pod))

    def collect(self, namespace: str, job: str, resource: Resource = JOBS) -> None:
        """Remove a finished job and all that it owns, like `ttlSecondsAfterFinished`."""
        self.delete(resource, namespace, job, propagationPolicy="Foreground")

    # Queues.

    def quota(self, namespace: str, queue: str, pods: int) -> None:
        """Make the LocalQueue, or change its quota: the number of pods that its jobs may have at once."""
        self._do(lambda: self._plane.queues.set_quota(namespace, queue, pods))

    def preempt(self, namespace: str, job: str) -> None:
        """Take back the admission of a job. It is admitted again as soon as the unchanged quota has room."""
        [workload] = [
            candidate["metadata"]["name"] for candidate in self.all_of(WORKLOADS, namespace) if _is_of(candidate, job)
        ]
        self._do(lambda: self._plane.queues.evict(namespace, workload))

    def pods(self, namespace: str) -> list[Object]:
        return self.all_of(PODS, namespace)

    def _do(self, what: Callable[[], Answer]) -> Answer:
        async def call() -> Answer:
            return what()

        return self._await(call())

    def _await(self, what: "collections.abc.Coroutine[Any, Any, Answer]") -> Answer:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=60)


def _is_of(object: Object, owner: str) -> bool:
    return any(reference["name"] == owner for reference in object["metadata"].get("ownerReferences") or ())


def _kubeconfig(port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulated", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "slipway", "user": {"token": "simulated"}}],
        "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "slipway"}}],
        "current-context": "simulated",
    }

"""The kubelets of all nodes: each runs the pods bound to its node, writes their status, and ends deleted ones."""

from collections.abc import Iterable
from pathlib import Path

from tests.kubernetes.simulated import errors, pods, statuses
from tests.kubernetes.simulated.controllers import Key, Manager
from tests.kubernetes.simulated.kinds import PODS, Object
from tests.kubernetes.simulated.machine import Machine
from tests.kubernetes.simulated.statuses import ContainerStatus
from tests.kubernetes.simulated.store import Change, where
from tests.kubernetes.simulated.worker import Worker

REBOOTED = (255, "Unknown")
"""Exit code and reason of a container that a container runtime finds dead after a boot."""


class Kubelets:
    def __init__(self, manager: Manager, machine: Machine, folder: Path) -> None:
        self._manager, self._registry, self._store = manager, manager.registry, manager.store
        self._machine, self._folder = machine, folder
        self.nodes: set[str] = set()
        """The nodes with a kubelet; pods of other nodes count as running, without any process."""
        self.silent: set[str] = set()
        """Nodes whose kubelet neither receives nor reports: they are off, or cut off."""
        self.workers: dict[str, Worker] = {}
        """By the pods' uids."""

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource == PODS and change.object["spec"].get("nodeName"):
            yield where(change.object)

    def sync(self, key: Key) -> None:
        pod = self._store.get(PODS, *key)
        uid = pod["metadata"]["uid"] if pod else ""
        for other, worker in list(self.workers.items()):
            if where(worker.pod) == key and other != uid and worker.node not in self.silent:
                self._forget(other, worker)
        if pod and pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in self.silent:
            self._sync(key, pod)

    def listen(self, node: str) -> None:
        """The kubelet answers again: it looks at all pods of its node, and at those that it still runs."""
        self.silent.discard(node)
        node_pods = [pod for pod in self._store.all_of(PODS) if pod["spec"].get("nodeName") == node]
        for pod in [*node_pods, *(worker.pod for worker in self.workers.values() if worker.node == node)]:
            self._manager.enqueue(self, where(pod))

    def running_on(self, node: str) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.node == node]

    def drop(self, node: str) -> list[Worker]:
        """Power off: kill all processes there, without a report."""
        dropped = self.running_on(node)
        self.workers = {uid: worker for uid, worker in self.workers.items() if worker.node != node}
        for worker in dropped:
            worker.kill()
        return dropped

    def log(self, pod: Object, container: str) -> bytes:
        """Raises 500 when the kubelet cannot be reached."""
        node, metadata = pod["spec"]["nodeName"], pod["metadata"]
        if node in self.silent:
            address = f"https://{node}:10250/containerLogs/{metadata['namespace']}/{metadata['name']}/{container}"
            raise errors.internal(f'Get "{address}": dial tcp {node}:10250: connect: no route to host')
        path = self._folder / metadata["uid"] / f"{container}.log"
        return path.read_bytes() if path.exists() else b""

    def _sync(self, key: Key, pod: Object) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        worker = self.workers.get(uid)
        if node not in self.nodes:
            self._pretend(pod)
        elif worker:
            self._follow(key, pod, worker)
        elif "deletionTimestamp" in pod["metadata"] or "startTime" in pod["status"]:
            self._bury(pod)
        elif not pods.is_finished(pod):
            changed = lambda: self._manager.enqueue(self, key)  # noqa: E731
            self.workers[uid] = Worker(self._machine, pod, self._folder / uid, changed)

    def _follow(self, key: Key, pod: Object, worker: Worker) -> None:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            worker.stop(metadata["deletionGracePeriodSeconds"])
        write = lambda it: statuses.write(it, worker.init, worker.main, worker.phase(), worker.since)  # noqa: E731
        after = self._registry.change(PODS, pod, write)
        if worker.is_over and "deletionTimestamp" in metadata:
            self._let_go(after)

    def _let_go(self, pod: Object) -> None:
        """No process runs any more: remove the object when its finalizers allow it."""
        if pod["metadata"]["deletionGracePeriodSeconds"] and self._store.get(PODS, *where(pod)):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            self._registry.delete(PODS, *where(pod), options)

    def _forget(self, uid: str, worker: Worker) -> None:
        """The object was removed, by force or because its pod has ended."""
        if worker.is_over:
            del self.workers[uid]
        else:
            worker.let_go()

    def _bury(self, pod: Object) -> None:
        """A pod that has run before the node was off, or that was deleted before it ran."""
        if not pods.is_finished(pod):
            code, reason = REBOOTED if "startTime" in pod["status"] else (137, "ContainerStatusUnknown")
            state = statuses.terminated(code, reason)
            dead = [
                ContainerStatus(container["name"], container["image"], state) for container in pod["spec"]["containers"]
            ]
            since = pod["status"].get("startTime") or pod["metadata"]["creationTimestamp"]
            pod = self._registry.change(PODS, pod, lambda it: statuses.write(it, [], dead, "Failed", since))
        if "deletionTimestamp" in pod["metadata"]:
            self._let_go(pod)

    def _pretend(self, pod: Object) -> None:
        """A pod of a node without processes runs until it is deleted (as KWOK's do)."""
        if "deletionTimestamp" in pod["metadata"]:
            self._let_go(pod)
        elif pods.phase(pod) == "Pending":
            state = statuses.running()
            main = [
                ContainerStatus(container["name"], container["image"], state) for container in pod["spec"]["containers"]
            ]
            since = pod["metadata"]["creationTimestamp"]
            self._registry.change(PODS, pod, lambda it: statuses.write(it, [], main, "Running", since))

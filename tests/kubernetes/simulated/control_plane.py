"""The parts of the cluster, joined in one event loop, and the faults that can happen to them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import aiohttp.web

from tests.kubernetes.simulated import pods, subresources
from tests.kubernetes.simulated.api import Api
from tests.kubernetes.simulated.controllers import Manager
from tests.kubernetes.simulated.garbage import GarbageCollector
from tests.kubernetes.simulated.jobs import Jobs
from tests.kubernetes.simulated.jobsets import JobSets
from tests.kubernetes.simulated.kinds import ADD_ONS, NODES, PODS, Object
from tests.kubernetes.simulated.kubelets import Kubelets
from tests.kubernetes.simulated.machine import Machine
from tests.kubernetes.simulated.namespaces import Namespaces
from tests.kubernetes.simulated.nodes import NodeLifecycle, PodGarbageCollector, TaintEviction
from tests.kubernetes.simulated.pytorchjobs import PyTorchJobs
from tests.kubernetes.simulated.queues import Queues
from tests.kubernetes.simulated.scheduler import Scheduler
from tests.kubernetes.simulated.store import Store
from tests.kubernetes.simulated.trainjobs import TrainJobs
from tests.kubernetes.simulated.watches import Watches
from tests.kubernetes.simulated.worker import Worker


class ControlPlane:
    def __init__(self, folder: Path) -> None:
        self.store = Store()
        self.manager = Manager(self.store)
        self.watches = Watches(self.store)
        self.machine = Machine(self.store, self.manager.events)
        self.kubelets = Kubelets(self.manager, self.machine, folder / "pods")
        self.lifecycle = NodeLifecycle(self.manager)
        self.api = Api(self.manager.registry, self.watches, self.kubelets.log)
        self.port = 0
        self._server: aiohttp.web.Server[aiohttp.web.BaseRequest] | None = None
        self._listener: asyncio.Server | None = None
        for resources in ADD_ONS.values():
            self.api.serve(*resources)
        nodes = (self.lifecycle, TaintEviction(self.manager), PodGarbageCollector(self.manager))
        self.queues = Queues(self.manager)
        kinds = (Namespaces, Jobs, JobSets, TrainJobs, PyTorchJobs)
        self.manager.add(*(kind(self.manager) for kind in kinds), self.queues, GarbageCollector(self.manager))
        self.manager.add(*nodes, Scheduler(self.manager), self.kubelets)

    async def stop(self) -> None:
        """End all processes, then the API server: pods end before their test does."""
        for node in list(self.kubelets.nodes):
            await self.power_off(node)
        if self._listener:
            await self.stop_api()

    async def start_api(self) -> None:
        self._server = aiohttp.web.Server(self.api)
        self._listener = await asyncio.get_running_loop().create_server(self._server, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]
        self.manager.resume()

    async def stop_api(self) -> None:
        assert self._listener and self._server
        self.manager.pause()
        self._listener.close()
        self.watches.close()
        await self._server.shutdown(timeout=0.05)
        self._listener = None

    def add_node(self, name: str, capacity: Mapping[str, str], labels: Mapping[str, str], with_kubelet: bool) -> None:
        node: Object = {"metadata": {"name": name, "labels": dict(labels)}}
        node["status"] = {"capacity": dict(capacity), "allocatable": dict(capacity)}
        node["status"]["addresses"] = [{"type": "Hostname", "address": name}]
        if with_kubelet:
            self.kubelets.nodes.add(name)
        _is_ready(node)
        self.manager.registry.create(NODES, "", node)

    async def power_off(self, node: str) -> None:
        self.silence(node)
        dropped = self.kubelets.drop(node)
        await asyncio.gather(*(worker.gone() for worker in dropped))

    def silence(self, node: str) -> None:
        self.kubelets.silent.add(node)
        self.lifecycle.falls_silent(node)

    def reconnect(self, node: str) -> None:
        """The kubelet, booted or reachable again, reports the node as ready and looks at its pods."""
        self.lifecycle.is_heard(node)
        if node_object := self.store.get(NODES, "", node):
            self.manager.registry.change(NODES, node_object, _is_ready)
        self.kubelets.listen(node)

    def evict(self, namespace: str, name: str) -> None:
        subresources.evicted(self.manager.registry, namespace, name, None)

    def worker(self, namespace: str, name: str) -> Worker:
        pod = self.manager.registry.get(PODS, namespace, name)
        return self.kubelets.workers[pod["metadata"]["uid"]]


def _is_ready(node: Object) -> None:
    pods.set_condition(node, "Ready", "True", "KubeletReady", "kubelet is posting ready status")
    for type, reason in PRESSURES.items():
        pods.set_condition(node, type, "False", reason, f"kubelet has no {type}")


PRESSURES = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}

"""Jobs on Kubernetes: an order, which is the job object, and a workload of some kind that does it.

Nothing is kept here: whoever comes next reads the same objects. What is read from a mirror is never the last word on a
job that ended or is not there.
"""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from resources.kubernetes import answers, names, orders, pod_facts, status, waiting
from resources.kubernetes.answers import Conflict, Refused
from resources.kubernetes.client import Client
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import (
    CONFIG_MAPS,
    EVENTS,
    JOB,
    LOCAL_QUEUES,
    NODES,
    PODS,
    WORKLOADS,
    Object,
    resource_of,
)
from resources.kubernetes.orders import Cancellation, Order
from resources.kubernetes.pod_facts import PodFacts
from resources.kubernetes.queues import QUEUE, QUEUED_JOB
from resources.kubernetes.reader import Reader
from resources.kubernetes.workloads import conditions
from resources.kubernetes.workloads.protocol import Workload
from resources.launcher import document
from resources.launcher.protocol import Job, State, Status, Unavailable

LOG_READERS = 8
"""How many pods' logs are read at a time."""


@dataclass(frozen=True)
class KubernetesLauncher:
    """Implements `resources.launcher.protocol.Launcher`."""

    client: Client
    cluster: Cluster
    workload: Workload
    mirror: Reader | None = None
    """Where to look first; without one, the API server is asked each time."""

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the one of that name; a crash on the way is made good by the next submit."""
        document.must_be_a_name(job.name)
        cluster = self.cluster.with_recipe(job.kubernetes)
        parts = self.workload.objects(names.object_name(job.name), job, cluster)
        order, is_new = self._accepted(job, cluster)
        if order.cancellation is not None or self._main(order, self.client) is not None:
            return
        try:
            for part in parts:
                self._create(part, order)
        except Refused:
            if is_new:
                self.client.delete(CONFIG_MAPS, order.name, order.uid)
            raise
        self._heed(job.name)

    def poll(self, name: str) -> Status:
        """Where the job stands."""
        found = self._status(name, self._first)
        return found if self.mirror is None or found.state.live else self._status(name, self.client)

    def cancel(self, name: str, grace_seconds: float) -> None:
        """Ask the job to stop. Asking again deletes what came to be in between, and does not prolong the grace."""
        order = self._order(name, self.client)
        if order is None or self._status(name, self.client).state.terminal:
            return
        if order.cancellation is None:
            cancellation = Cancellation(time.time(), grace_seconds)
            # Whoever else has changed it has cancelled it: nothing else of an order changes.
            with contextlib.suppress(Conflict):
                self.client.patch(CONFIG_MAPS, order.name, orders.cancelled(order, cancellation))
        self._heed(name)

    def release(self, name: str) -> bool:
        """Remove a terminal job: with its order all goes that belongs to it."""
        order = self._order(name, self.client)
        if order is None or not self._status(name, self.client).state.terminal:
            return False
        return self.client.delete(CONFIG_MAPS, order.name, order.uid)

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        """The end of each node's output, as far as its pod is there and its kubelet answers."""
        order = self._order(name, self.client)
        if order is None:
            return {}
        found = self.client.list(PODS, {JOB: order.name})
        placed = sorted((pod for pod in found if pod["spec"].get("nodeName")), key=_made)
        with ThreadPoolExecutor(LOG_READERS) as readers:
            texts = list(readers.map(lambda pod: self._log(pod, tail_bytes), placed))
        by_node: dict[str, str] = {}
        for pod, text in zip(placed, texts, strict=True):
            node = pod["spec"]["nodeName"]
            by_node[node] = by_node.get(node, "") + text
        return {node: text.encode()[-tail_bytes:].decode(errors="replace") for node, text in by_node.items()}

    def _accepted(self, job: Job, cluster: Cluster) -> tuple[Order, bool]:
        """The job's order, and whether it is new. Raises ValueError when it is another job's, or cannot be done."""
        wanted = orders.written(names.object_name(job.name), job)
        found = self.client.get(CONFIG_MAPS, wanted["metadata"]["name"])
        if found is None:
            self._must_be_possible(job, cluster)
            made = self.client.create(CONFIG_MAPS, wanted)
            if made is not None:
                return orders.read(made), True
            found = self.client.get(CONFIG_MAPS, wanted["metadata"]["name"])
        if found is None:
            raise Unavailable(f"job {job.name}: it was removed while it was submitted")
        order = orders.read(found)
        document.must_be_the_same(document.of(job), order.job)
        return order, False

    def _must_be_possible(self, job: Job, cluster: Cluster) -> None:
        """Raise ValueError for what the cluster does not have."""
        for resource in (self.workload.resource, *([LOCAL_QUEUES] if cluster.queue else [])):
            if not self.client.serves(resource):
                raise ValueError(f"job {job.name}: {answers.missing(resource)}")
        nodes = [node["metadata"]["name"] for node in self._first.list(NODES, cluster.node_selector)]
        if not nodes:
            raise ValueError(
                f"job {job.name}: no node of the cluster has the labels {dict(cluster.node_selector)}: label those of "
                "the fleet, or change the node selector of the platform's Kubernetes settings"
            )
        document.must_be_possible(job, nodes)
        if cluster.queue and self.client.get(LOCAL_QUEUES, cluster.queue) is None:
            there = [queue["metadata"]["name"] for queue in self.client.list(LOCAL_QUEUES, {})]
            raise ValueError(
                f"job {job.name}: queue {cluster.queue}: there is no such LocalQueue in namespace "
                f"{self.client.namespace}; there are {', '.join(there) or 'none'}"
            )

    def _create(self, part: Object, order: Order) -> None:
        """Create a part of the job, or find it created. Raises Unavailable while there is one of an earlier job."""
        resource = resource_of(part)
        if self.client.create(resource, orders.owned(part, order)) is not None:
            return
        found = self.client.get(resource, part["metadata"]["name"])
        if found is None or not orders.belongs(found, order):
            raise Unavailable(f"{resource.kind} {part['metadata']['name']} of an earlier job is still being removed")

    def _heed(self, name: str) -> None:
        """Stop the job if it is cancelled.

        The pods go first: the garbage collector, which takes the workload's, would give them another grace, and a
        kubelet that has begun with one keeps to it. Then the workload, and then what it had started meanwhile.
        """
        order = self._order(name, self.client)
        if order is None or order.cancellation is None:
            return
        self._end_pods(order, order.cancellation)
        main = self._main(order, self.client)
        if main is not None:
            self.client.delete(self.workload.resource, order.name, main["metadata"]["uid"])
            self._end_pods(order, order.cancellation)

    def _end_pods(self, order: Order, cancellation: Cancellation) -> None:
        for pod in self._pods(order, self.client):
            if not pod.is_over and (pod.doomed_at is None or pod.doomed_at > cancellation.deadline + 1):
                self.client.delete(PODS, pod.name, grace_seconds=cancellation.grace_left(time.time()))

    @property
    def _first(self) -> Reader:
        """Whom to ask first."""
        return self.mirror or self.client

    def _order(self, name: str, reader: Reader) -> Order | None:
        found = reader.get(CONFIG_MAPS, names.object_name(name))
        try:
            return orders.read(found) if found is not None else None
        except ValueError as error:
            raise Unavailable(f"job {name}: {error}") from error

    def _main(self, order: Order, reader: Reader) -> Object | None:
        """The workload of the order, and not one of an earlier order of the same name, which is being removed."""
        found = reader.get(self.workload.resource, order.name)
        return found if found is not None and orders.belongs(found, order) else None

    def _pods(self, order: Order, reader: Reader) -> list[PodFacts]:
        return [pod_facts.of(pod) for pod in reader.list(PODS, {JOB: order.name})]

    def _status(self, name: str, reader: Reader) -> Status:
        order = self._order(name, reader)
        if order is None:
            return Status(State.MISSING)
        main, pods, now = self._main(order, reader), self._pods(order, reader), time.time()
        overdue = {pod.node for pod in pods if status.is_overdue(pod, now)}
        dark = {node for node in overdue if not _answers(reader.get(NODES, node))}
        found = status.of(order, self.workload.read(main) if main else None, pods, dark, now)
        if found.state is State.PENDING and main is not None and order.cancellation is None:
            return replace(found, reason=self._wait(order, main, pods, reader) or found.reason)
        return found

    def _wait(self, order: Order, main: Object, pods: list[PodFacts], reader: Reader) -> str:
        """What a pending job waits for; it waits all the same where that cannot be found out."""
        if told := waiting.by_pods(pods):
            return told
        with contextlib.suppress(Unavailable):
            if QUEUE in main["metadata"].get("labels", {}) and not pods:
                admissions = reader.list(WORKLOADS, {QUEUED_JOB: main["metadata"]["uid"]})
                return waiting.by_queue(admissions)
            return waiting.by_events(reader.list(EVENTS, {}), order.name)
        return ""

    def _log(self, pod: Object, tail_bytes: int) -> str:
        """The end of a pod's output; where that is gone, what the kubelet kept of it."""
        name = pod["metadata"]["name"]
        try:
            text = self.client.log(name, pod_facts.container_name(pod), tail_bytes)
        except Unavailable as error:
            return f"{pod_facts.last_words(pod)}\n(the rest of the log cannot be read: {error})\n".lstrip("\n")
        return pod_facts.last_words(pod) if text is None else text


def _made(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _answers(node: Object | None) -> bool:
    """Whether a node is there, and its kubelet says so."""
    return node is not None and "Ready" in conditions.holding(node)

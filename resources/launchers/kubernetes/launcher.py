"""The Kubernetes launcher: each job has an order (the job object) and a workload that runs the job.

All state is in these objects, so every process reads the same. If a mirror shows that a job has ended or is missing,
the launcher confirms it with the API server.
"""

import contextlib
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from slipway.resources.errors import PlatformFault, Unavailable
from slipway.resources.kubernetes import answers
from slipway.resources.kubernetes.answers import ObjectConflict, RefusedRequest
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import (
    CONFIG_MAPS,
    EVENTS,
    JOB,
    NODES,
    PODS,
    ClusterReader,
    KubernetesObject,
    holding_conditions,
)
from slipway.resources.launchers import document
from slipway.resources.launchers.kubernetes import names, network, orders, pod_facts, status, store
from slipway.resources.launchers.kubernetes.network import NETWORK_POLICIES
from slipway.resources.launchers.kubernetes.orders import Cancellation, JobOrder
from slipway.resources.launchers.kubernetes.pod_facts import PodFacts
from slipway.resources.launchers.kubernetes.queues import LOCAL_QUEUES, QUEUE, QUEUED_JOB, WORKLOADS
from slipway.resources.launchers.kubernetes.status import wait_by_events, wait_by_pods, wait_by_queue
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.protocol import DoesNotFit, Job, JobState, Status
from slipway.resources.steps import misfit

LOG_READERS = 8
"""The number of pod logs that are read in parallel."""


@dataclass(frozen=True)
class KubernetesLauncher:
    """Implements `slipway.resources.launchers.protocol.Launcher`."""

    client: Client
    cluster: Cluster
    workload: Workload
    mirror: ClusterReader | None = None
    """`poll` reads the mirror first; without it, it asks the API server each time."""

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the job with its name. After a crash in between, the next call completes the job."""
        document.must_be_a_name(job.name)
        cluster = self.cluster.with_recipe(job.kubernetes)
        name = names.object_name(job.name)
        parts = [*network.parts(name, job, cluster), *self.workload.objects(name, job, cluster)]
        order, is_new = self._accepted(job, cluster)
        if order.cancellation is not None or self._main(order, self.client) is not None:
            return
        try:
            for part in parts:
                self._create(part, order)
        except (RefusedRequest, PlatformFault):
            if is_new:
                with contextlib.suppress(Unavailable):  # report the rejection; the order may stay
                    self.client.delete(CONFIG_MAPS, order.name, order.uid)
            raise
        self._stop_if_cancelled(job.name)

    def poll(self, name: str) -> Status:
        """The status of the job. Raises Unavailable."""
        job_status = self._status(name, self._reader)
        if self.mirror is not None and not job_status.state.live:
            return self._status(name, self.client)
        return job_status

    def cancel(self, name: str, grace_seconds: float) -> None:
        """Ask the job to stop. A repeated call deletes new pods, but does not prolong the grace period."""
        order = self._order(name, self.client)
        if order is None or self._status(name, self.client).state.terminal:
            return
        if order.cancellation is None:
            cancellation = Cancellation(time.time(), grace_seconds)
            # A conflict means that another process has cancelled the order, since nothing else in an order changes.
            with contextlib.suppress(ObjectConflict):
                self.client.patch(CONFIG_MAPS, order.name, orders.cancelled(order, cancellation))
        self._stop_if_cancelled(name)

    def take_back(self, name: str, nodes: Collection[str]) -> tuple[str, ...]:
        """The nodes on which the job has a pod again, or a pod that waits. The cluster itself replaces dead pods."""
        order = self._order(name, self._reader)
        if order is None or self._status(name, self._reader).state is not JobState.RUNNING:
            return ()
        pods = [pod for pod in pod_facts.current(self._pods(order, self._reader)) if not pod.is_over]
        placed = [node for node in nodes if node in {pod.node for pod in pods}]
        others = [node for node in nodes if node not in placed]
        unplaced = sum(not pod.node for pod in pods)
        return (*placed, *others[:unplaced])

    def release(self, name: str) -> bool:
        """Remove a terminal job. With its order, the cluster removes all objects of the job."""
        order = self._order(name, self.client)
        if order is None or not self._status(name, self.client).state.terminal:
            return False
        return self.client.delete(CONFIG_MAPS, order.name, order.uid)

    def rest(self) -> None:
        """Do nothing: a cluster has no warm processes."""

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        """The end of each node's output, if the pod exists and its kubelet answers."""
        order = self._order(name, self.client)
        if order is None:
            return {}
        pods = self.client.list(PODS, {JOB: order.name})
        placed = sorted((pod for pod in pods if pod["spec"].get("nodeName")), key=_by_age)
        with ThreadPoolExecutor(LOG_READERS) as readers:
            texts = list(readers.map(lambda pod: self._log(pod, tail_bytes), placed))
        by_node: dict[str, str] = {}
        for pod, text in zip(placed, texts, strict=True):
            node = pod["spec"]["nodeName"]
            by_node[node] = by_node.get(node, "") + text
        return {node: text.encode()[-tail_bytes:].decode(errors="replace") for node, text in by_node.items()}

    def _accepted(self, job: Job, cluster: Cluster) -> tuple[JobOrder, bool]:
        """The job's order, and whether it is new. Raises ValueError if the order is of another job, and as
        `_must_be_possible` does."""
        document_of_order = orders.written(names.object_name(job.name), job)
        config_map = self.client.get(CONFIG_MAPS, document_of_order["metadata"]["name"])
        if config_map is None:
            self._must_be_possible(job, cluster)
            created = self.client.create(CONFIG_MAPS, document_of_order)
            if created is not None:
                return orders.read(created), True
            config_map = self.client.get(CONFIG_MAPS, document_of_order["metadata"]["name"])
        if config_map is None:
            raise Unavailable(f"job {job.name}: another process removed it during its submission")
        order = orders.read(config_map)
        document.must_be_the_same(document.of(job), order.job)
        return order, False

    def _must_be_possible(self, job: Job, cluster: Cluster) -> None:
        """Raises PlatformFault if the cluster lacks a kind of object, a node or a queue that the job needs, and
        ValueError if the job is too large for the nodes."""
        resources = [self.workload.resource]
        if cluster.queue:
            resources.append(LOCAL_QUEUES)
        for resource in resources:
            if not self.client.serves(resource):
                raise PlatformFault(f"job {job.name}: {answers.missing(resource)}")
        fleet = self._reader.list(NODES, cluster.node_selector)
        nodes = [node["metadata"]["name"] for node in fleet]
        if not nodes:
            raise PlatformFault(
                f"job {job.name}: found no node with the labels {dict(cluster.node_selector)}; label the nodes of the "
                "fleet, or change compute.cluster.node_selector in the platform's settings"
            )
        document.must_be_possible(job, nodes)
        reason = misfit(cluster.requested, fleet)
        if reason:
            raise DoesNotFit(
                f"job {job.name}: its pods fit on no node: {reason}; lower placement.kubernetes.resources in the "
                "recipe, or compute.cluster.resources in the platform's settings"
            )
        if cluster.queue and self.client.get(LOCAL_QUEUES, cluster.queue) is None:
            there = [queue["metadata"]["name"] for queue in self.client.list(LOCAL_QUEUES, {})]
            raise PlatformFault(
                f"job {job.name}: queue {cluster.queue}: found no such LocalQueue in namespace "
                f"{self.client.namespace}, expected one of {', '.join(there) or 'none'}; "
                "create it, or name another queue"
            )

    def _create(self, part: KubernetesObject, order: JobOrder) -> None:
        """Create an object of the job, unless it exists. Raises Unavailable while an earlier job's object exists."""
        resource = NETWORK_POLICIES if part["kind"] == NETWORK_POLICIES.kind else self.workload.resource_of(part)
        if self.client.create(resource, orders.owned(part, order)) is not None:
            return
        present = self.client.get(resource, part["metadata"]["name"])
        if present is None or not orders.belongs(present, order):
            raise Unavailable(f"{resource.kind} {part['metadata']['name']} of an earlier job is still being removed")

    def _stop_if_cancelled(self, name: str) -> None:
        """Delete the pods and the workload of a cancelled job.

        The pods come first: deleting the workload makes the garbage collector delete them with another grace period,
        and a kubelet keeps the first one that it gets. Then come the workload and the pods that it started meanwhile.
        """
        order = self._order(name, self.client)
        if order is None or order.cancellation is None:
            return
        self._end_pods(order, order.cancellation)
        # The store ends by itself after the last pod, which may still need it for a last checkpoint.
        self.client.delete(PODS, store.name_of(order.name), grace_seconds=order.cancellation.grace_left(time.time()))
        main = self._main(order, self.client)
        if main is not None:
            self.client.delete(self.workload.resource, order.name, main["metadata"]["uid"])
            self._end_pods(order, order.cancellation)

    def _end_pods(self, order: JobOrder, cancellation: Cancellation) -> None:
        for pod in self._pods(order, self.client):
            if not pod.is_over and (pod.must_end_at is None or pod.must_end_at > cancellation.deadline + 1):
                self.client.delete(PODS, pod.name, grace_seconds=cancellation.grace_left(time.time()))

    @property
    def _reader(self) -> ClusterReader:
        """The reader that `poll` uses first."""
        return self.mirror or self.client

    def _order(self, name: str, reader: ClusterReader) -> JobOrder | None:
        config_map = reader.get(CONFIG_MAPS, names.object_name(name))
        try:
            return orders.read(config_map) if config_map is not None else None
        except ValueError as error:
            raise Unavailable(f"job {name}: {error}") from error

    def _main(self, order: JobOrder, reader: ClusterReader) -> KubernetesObject | None:
        """The main object of the order's workload; None if it belongs to an earlier order, which is being removed."""
        workload = reader.get(self.workload.resource, order.name)
        return workload if workload is not None and orders.belongs(workload, order) else None

    def _pods(self, order: JobOrder, reader: ClusterReader) -> list[PodFacts]:
        return [pod_facts.of(pod) for pod in reader.list(PODS, {JOB: order.name})]

    def _status(self, name: str, reader: ClusterReader) -> Status:
        order = self._order(name, reader)
        if order is None:
            return Status(JobState.MISSING)
        main = self._main(order, reader)
        pods = self._pods(order, reader)
        now = time.time()
        overdue = {pod.node for pod in pods if status.is_overdue(pod, now)}
        silent = {node for node in overdue if not _is_ready(reader.get(NODES, node))}
        job_status = status.of(order, self.workload.read(main) if main else None, pods, silent, now)
        if job_status.state is JobState.PENDING and main is not None and order.cancellation is None:
            return replace(job_status, reason=self._wait(order, main, pods, reader) or job_status.reason)
        return job_status

    def _wait(self, order: JobOrder, main: KubernetesObject, pods: list[PodFacts], reader: ClusterReader) -> str:
        """What a pending job waits for; "" if unknown."""
        reason = wait_by_pods(pods)
        if reason:
            return reason
        with contextlib.suppress(Unavailable):
            if QUEUE in main["metadata"].get("labels", {}) and not pods:
                admissions = reader.list(WORKLOADS, {QUEUED_JOB: main["metadata"]["uid"]})
                return wait_by_queue(admissions)
            return wait_by_events(reader.list(EVENTS, {}), order.name)
        return ""

    def _log(self, pod: KubernetesObject, tail_bytes: int) -> str:
        """The end of a pod's output; if the log is gone, the part in the pod's status."""
        name = pod["metadata"]["name"]
        try:
            text = self.client.log(name, pod_facts.container_name(pod), tail_bytes)
        except Unavailable as error:
            return f"{pod_facts.last_output(pod)}\n(the rest of the log cannot be read: {error})\n".lstrip("\n")
        return pod_facts.last_output(pod) if text is None else text


def _by_age(pod: KubernetesObject) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _is_ready(node: KubernetesObject | None) -> bool:
    """Whether a node exists and its kubelet reports it as ready."""
    return node is not None and "Ready" in holding_conditions(node)

"""Admission as Kueue does it (kubernetes-sigs/kueue): a Workload for every queued job, which starts when it fits.

The quota of a LocalQueue is a number of pods here; flavours and cohorts are left out.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.kubernetes.simulated import jobs, jobsets, pods, pytorchjobs
from tests.kubernetes.simulated.controllers import Key, Manager, reference_to
from tests.kubernetes.simulated.kinds import (
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    PYTORCH_JOBS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Object,
    Resource,
)
from tests.kubernetes.simulated.store import Change

QUEUE = "kueue.x-k8s.io/queue-name"
LEAST = "kueue.x-k8s.io/job-min-parallelism"
AND_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
CLUSTER_QUEUE = "cluster-queue"
FLAVOUR = "default"
MANAGED = (JOBS, JOB_SETS, PYTORCH_JOBS, TRAIN_JOBS)


@dataclass(frozen=True)
class Queued:
    """A job with a queue's label, whatever its kind."""

    resource: Resource
    job: Object

    @property
    def queue(self) -> str:
        return str(self.job["metadata"]["labels"][QUEUE])

    @property
    def workload(self) -> str:
        name = self.job["metadata"]["name"]
        mark = hashlib.sha1(self.job["metadata"]["uid"].encode()).hexdigest()[:5]
        return f"{self.resource.kind.lower()}-{name}-{mark}"

    @property
    def is_finished(self) -> bool:
        tests = {JOBS: jobs.is_finished, JOB_SETS: jobsets.is_finished, PYTORCH_JOBS: pytorchjobs.is_finished}
        return tests.get(self.resource, jobs.is_finished)(self.job)

    @property
    def is_suspended(self) -> bool:
        return bool(_policy(self.resource, self.job).get("suspend"))


class Queues:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events
        self._quotas: dict[tuple[str, str], int] = {}
        self._manager = manager
        self._order: dict[str, int] = {}
        """When each job was first seen, by uid."""

    def keys(self, change: Change) -> Iterable[Key]:
        """After any change of a queued job or of a queue, the whole queue is considered again."""
        metadata = change.object["metadata"]
        if change.resource in MANAGED and QUEUE in (metadata.get("labels") or {}):
            yield metadata["namespace"], metadata["labels"][QUEUE]
        elif change.resource in (LOCAL_QUEUES, WORKLOADS):
            yield metadata["namespace"], change.object["spec"].get("queueName") or metadata["name"]

    def set_quota(self, namespace: str, queue: str, count: int) -> None:
        self._quotas[namespace, queue] = count
        if self._store.get(LOCAL_QUEUES, namespace, queue) is None:
            queue_object = {"metadata": {"name": queue}, "spec": {"clusterQueue": CLUSTER_QUEUE}}
            self._registry.create(LOCAL_QUEUES, namespace, queue_object)
        self._manager.enqueue(self, (namespace, queue))

    def evict(self, namespace: str, name: str) -> None:
        """Preemption: the admission is taken back, and the job suspended with it."""
        workload = self._registry.get(WORKLOADS, namespace, name)
        self._registry.change(WORKLOADS, workload, _evict)

    def sync(self, key: Key) -> None:
        """First in, first out: admitted jobs keep their quota, waiting jobs are admitted while they fit."""
        entries = [(queued, self._workload(queued)) for queued in self._queued(*key)]
        free = self._quotas.get(key, 0) - sum(_taken(workload) for _, workload in entries)
        for queued, workload in entries:
            if queued.is_finished:
                continue
            if pods.is_true(workload, "Admitted"):
                self._open(queued, workload)
            elif pods.is_true(workload, "Evicted") and not queued.is_suspended:
                self._change(queued, lambda it, kind: _policy(kind, it).update(suspend=True))
            else:
                free -= self._admit(queued, workload, free)

    def _queued(self, namespace: str, queue: str) -> list[Queued]:
        """The queued jobs without a controller: a child is started by its parent."""
        queued_jobs = [
            Queued(resource, job)
            for resource in MANAGED
            for job in self._store.all_of(resource, namespace)
            if (job["metadata"].get("labels") or {}).get(QUEUE) == queue and not pods.controller_of(job)
        ]
        return sorted(
            queued_jobs, key=lambda queued: self._order.setdefault(queued.job["metadata"]["uid"], len(self._order))
        )

    def _workload(self, queued: Queued) -> Object:
        """Make the Workload, or say in it that the job has finished."""
        namespace = queued.job["metadata"]["namespace"]
        workload = self._store.get(WORKLOADS, namespace, queued.workload)
        if workload is None:
            labels = {"kueue.x-k8s.io/job-uid": queued.job["metadata"]["uid"]}
            owners = [reference_to(queued.job)]
            metadata = {"name": queued.workload, "labels": labels, "ownerReferences": owners}
            pod_set: Object = {"name": "main", "count": self._count(queued)}
            if LEAST in (annotations := queued.job["metadata"].get("annotations") or {}):
                pod_set["minCount"] = int(annotations[LEAST])
            spec = {"queueName": queued.queue, "podSets": [pod_set], "active": True}
            workload = self._registry.create(WORKLOADS, namespace, {"metadata": metadata, "spec": spec})
        if queued.is_finished:
            how = lambda it: pods.set_condition(it, "Finished", "True", "Succeeded", "Job finished")  # noqa: E731
            workload = self._registry.change(WORKLOADS, workload, how)
        return workload

    def _count(self, queued: Queued) -> int:
        spec = queued.job["spec"]
        if queued.resource == JOBS:
            return int(spec["parallelism"])
        if queued.resource == PYTORCH_JOBS:
            return sum(replica_spec.get("replicas", 1) for replica_spec in spec["pytorchReplicaSpecs"].values())
        if queued.resource == TRAIN_JOBS:
            runtime = self._registry.get(
                TRAINING_RUNTIMES, queued.job["metadata"]["namespace"], spec["runtimeRef"]["name"]
            )
            spec = runtime["spec"]["template"]["spec"]
        return sum(
            replicated.get("replicas", 1) * replicated["template"]["spec"].get("parallelism", 1)
            for replicated in spec["replicatedJobs"]
        )

    def _admit(self, queued: Queued, workload: Object, free: int) -> int:
        """Admit the job with all its pods, or with fewer if that is enough for it; returns how many."""
        [pod_set] = workload["spec"]["podSets"]
        if self._store.get(LOCAL_QUEUES, queued.job["metadata"]["namespace"], queued.queue) is None:
            self._refuse(workload, "Inadmissible", f"LocalQueue {queued.queue} doesn't exist")
            return 0
        if free < pod_set.get("minCount", pod_set["count"]):
            short = (
                f"insufficient unused quota for pods in flavor {FLAVOUR}, {pod_set['count'] - max(free, 0)} more needed"
            )
            self._refuse(workload, "Pending", f"couldn't assign flavors to pod set main: {short}")
            return 0
        count = min(free, pod_set["count"])
        self._registry.change(WORKLOADS, workload, lambda it: _admit(it, count))
        return int(count)

    def _refuse(self, workload: Object, reason: str, message: str) -> None:
        how = lambda it: pods.set_condition(it, "QuotaReserved", "False", reason, message)  # noqa: E731
        self._registry.change(WORKLOADS, workload, how)
        self._events.warning(workload, "Pending", message, "kueue-admission")

    def _open(self, queued: Queued, workload: Object) -> None:
        count = workload["status"]["admission"]["podSetAssignments"][0]["count"]

        def start(it: Object, kind: Resource) -> None:
            _policy(kind, it)["suspend"] = False
            if kind == JOBS and count < it["spec"]["parallelism"]:
                it["spec"]["parallelism"] = count
                if (it["metadata"].get("annotations") or {}).get(AND_COMPLETIONS) == "true":
                    it["spec"]["completions"] = count

        if queued.is_suspended:
            self._change(queued, start)
            self._events.normal(
                queued.job, "Started", f"Admitted by clusterQueue {CLUSTER_QUEUE}", "kueue-job-controller"
            )

    def _change(self, queued: Queued, how: Callable[[Object, Resource], None]) -> None:
        self._registry.change(queued.resource, queued.job, lambda it: how(it, queued.resource))


def _policy(resource: Resource, job: Object) -> Object:
    """The part of a kind's spec that holds `suspend`."""
    policy: Object = job["spec"]["runPolicy"] if resource == PYTORCH_JOBS else job["spec"]
    return policy


def _taken(workload: Object) -> int:
    if not pods.is_true(workload, "Admitted") or pods.is_true(workload, "Finished"):
        return 0
    return int(workload["status"]["admission"]["podSetAssignments"][0]["count"])


def _admit(workload: Object, count: int) -> None:
    assignment = {"name": "main", "count": count, "flavors": {"pods": FLAVOUR}}
    workload["status"]["admission"] = {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": [assignment]}
    message = f"Quota reserved in ClusterQueue {CLUSTER_QUEUE}"
    pods.set_condition(workload, "QuotaReserved", "True", "QuotaReserved", message)
    pods.set_condition(workload, "Admitted", "True", "Admitted", "The workload is admitted")
    if pods.is_true(workload, "Evicted"):
        pods.set_condition(workload, "Evicted", "False", "QuotaReserved", "Previously: Preempted")


def _evict(workload: Object) -> None:
    why = (
        "Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to prioritization in the ClusterQueue"
    )
    workload["status"].pop("admission", None)
    pods.set_condition(workload, "Evicted", "True", "Preempted", why)
    pods.set_condition(workload, "QuotaReserved", "False", "Pending", why)
    pods.set_condition(workload, "Admitted", "False", "NoReservation", "The workload has no reservation")

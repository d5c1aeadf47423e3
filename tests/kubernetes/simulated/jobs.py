"""The Job controller (k8s.io/kubernetes/pkg/controller/job, release 1.36): its pods, counters and conditions."""

import copy
from collections.abc import Iterable

from tests.kubernetes.simulated import clock, failure_policy, indexes, pods
from tests.kubernetes.simulated.controllers import Key, Manager, own_or_owned, owned_by, reference_to
from tests.kubernetes.simulated.errors import KubernetesError
from tests.kubernetes.simulated.indexes import INDEX
from tests.kubernetes.simulated.kinds import JOBS, PODS, Object
from tests.kubernetes.simulated.store import Change, where

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer that keeps a pod until it is counted."""
COMPONENT = "job-controller"
RETRY_SECONDS = 10.0
"""Before a pod that was refused is tried again."""
Verdict = tuple[str, str, str]
"""The condition, reason and message with which a Job ends."""


class Jobs:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events
        self._manager = manager

    def keys(self, change: Change) -> Iterable[Key]:
        return own_or_owned(change, JOBS, [PODS])

    def sync(self, key: Key) -> None:
        job = self._store.get(JOBS, *key)
        if job is None:
            self._release_orphans(key)
        elif not is_finished(job):
            job = self._started(job)
            verdict = self._verdict(job, self._pods(job))
            if verdict:
                self._delete_active(job)
            elif "deletionTimestamp" not in job["metadata"]:
                self._keep_pods(job)
                job = self._told_suspension(job)
            self._count(job, verdict)

    def _pods(self, job: Object) -> list[Object]:
        return owned_by(self._store, PODS, job)

    def _started(self, job: Object) -> Object:
        if job["spec"]["suspend"] or "startTime" in job["status"]:
            return job
        return self._registry.change(JOBS, job, lambda it: it["status"].update(startTime=clock.now()))

    def _verdict(self, job: Object, job_pods: list[Object]) -> Verdict | None:
        """How the Job ends, once that is certain; its condition is written first and its pods end after."""
        for interim in ("SuccessCriteriaMet", "FailureTarget"):
            if pods.is_true(job, interim):
                condition = pods.condition(job, interim)
                assert condition is not None
                return interim, condition["reason"], condition["message"]
        if message := failure_policy.fail_job(job, [pod for pod in job_pods if has_failed(pod, job)]):
            return "FailureTarget", "PodFailurePolicy", message
        if self._failed(job, job_pods) > job["spec"]["backoffLimit"]:
            return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        succeeded, completions = succeeded_of(job, job_pods), job["spec"].get("completions")
        active = [pod for pod in job_pods if pods.is_active(pod)]
        if not active and (succeeded >= completions if completions is not None else succeeded):
            return "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _failed(self, job: Object, job_pods: list[Object]) -> int:
        new = [pod for pod in job_pods if is_uncounted(pod) and has_failed(pod, job)]
        counted = [pod for pod in new if failure_policy.counts(job, pod)]
        return int(job["status"].get("failed", 0)) + len(counted)

    def _delete_active(self, job: Object) -> None:
        for pod in self._pods(job):
            if pods.is_active(pod):
                self._delete(job, pod)

    def _keep_pods(self, job: Object) -> None:
        """Create the pods that are missing; delete those of a suspended Job and those that are too many."""
        job_pods, spec = self._pods(job), job["spec"]
        active = [pod for pod in job_pods if pods.is_active(pod)]
        completions = spec.get("completions")
        missing_completions = spec["parallelism"] if completions is None else completions - succeeded_of(job, job_pods)
        parallelism = 0 if spec["suspend"] else min(spec["parallelism"], missing_completions)
        terminating = [pod for pod in job_pods if pods.is_terminating(pod)] if only_failed_are_replaced(job) else []
        for pod in active[parallelism:] if len(active) > parallelism else []:
            # The finalizer goes first: a pod that the controller itself removes does not count as failed.
            self._delete(job, self._release(pod))
        missing = parallelism - len(active) - len(terminating)
        taken = indexes.completed(job, job_pods) | {indexes.of(pod) for pod in [*active, *terminating]}
        free = [index for index in range(completions or spec["parallelism"]) if index not in taken]
        for index in (free if indexes.is_indexed(job) else range(missing))[: max(missing, 0)]:
            self._create(job, index)

    def _create(self, job: Object, index: int) -> None:
        try:
            created = self._registry.create(PODS, job["metadata"]["namespace"], pod_of(job, index))
        except KubernetesError as error:
            self._events.warning(job, "FailedCreate", f"Error creating: {error.message}", COMPONENT)
            self._manager.enqueue_after(RETRY_SECONDS / clock.HURRY, self, where(job))
            return
        self._events.normal(job, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}", COMPONENT)

    def _delete(self, job: Object, pod: Object) -> None:
        metadata = pod["metadata"]
        self._registry.delete(PODS, metadata["namespace"], metadata["name"])
        self._events.normal(job, "SuccessfulDelete", f"Deleted pod: {metadata['name']}", COMPONENT)

    def _told_suspension(self, job: Object) -> Object:
        """The condition Suspended, once a Job was; a resumed Job starts anew."""

        def tell(it: Object) -> None:
            if it["spec"]["suspend"]:
                pods.set_condition(it, "Suspended", "True", "JobSuspended", "Job suspended")
                it["status"].pop("startTime", None)
            elif pods.condition(it, "Suspended"):
                pods.set_condition(it, "Suspended", "False", "JobResumed", "Job resumed")
                it["status"]["startTime"] = clock.now()

        if pods.is_true(job, "Suspended") == job["spec"]["suspend"]:
            return job
        suspended = job["spec"]["suspend"]
        reason = ("Suspended", "Job suspended") if suspended else ("Resumed", "Job resumed")
        self._events.normal(job, *reason, COMPONENT)
        return self._registry.change(JOBS, job, tell)

    def _count(self, job: Object, verdict: Verdict | None) -> None:
        """Write counters and conditions, then remove the finalizer of the counted pods.

        The last condition waits for the pods that are still terminating: also for those of a lost node.
        """
        job_pods, leaves = self._pods(job), verdict or "deletionTimestamp" in job["metadata"]
        over = [
            pod for pod in job_pods if is_uncounted(pod) and (leaves or pods.is_finished(pod) or has_failed(pod, job))
        ]
        ends = [pod for pod in over if verdict or has_failed(pod, job)]
        lost = [pod for pod in ends if pods.phase(pod) != "Succeeded" and failure_policy.counts(job, pod)]
        succeeded, terminating = succeeded_of(job, job_pods), sum(pods.is_terminating(pod) for pod in job_pods)

        def tell(it: Object) -> None:
            status, active = it["status"], [pod for pod in job_pods if pods.is_active(pod)]
            status["ready"] = sum(pods.is_true(pod, "Ready") for pod in active)
            status["terminating"] = terminating
            status["uncountedTerminatedPods"] = {}
            _set_or_drop(status, "active", len(active))
            _set_or_drop(status, "succeeded", succeeded)
            _set_or_drop(status, "failed", status.get("failed", 0) + len(lost))
            if indexes.is_indexed(it):
                _set_or_drop(status, "completedIndexes", indexes.written(indexes.completed(job, job_pods)))
            if verdict:
                conclude(it, verdict, terminating)

        after = self._registry.change(JOBS, job, tell)
        for pod in over:
            self._release(pod)
        if is_finished(after):
            self._tell_end(after)

    def _tell_end(self, job: Object) -> None:
        if pods.is_true(job, "Complete"):
            self._events.normal(job, "Completed", "Job completed", COMPONENT)
        elif condition := pods.condition(job, "Failed"):
            self._events.warning(job, condition["reason"], condition["message"], COMPONENT)

    def _release_orphans(self, key: Key) -> None:
        """No controller counts the pods of a removed Job."""
        for pod in self._store.all_of(PODS, key[0]):
            owner = pods.controller_of(pod)
            if owner and (owner["kind"], owner["name"]) == ("Job", key[1]) and is_uncounted(pod):
                self._release(pod)

    def _release(self, pod: Object) -> Object:
        return self._registry.change(PODS, pod, lambda it: it["metadata"]["finalizers"].remove(TRACKING))


def conclude(job: Object, verdict: Verdict, terminating: int) -> None:
    """Write the interim condition, and the last one when no pod is left that ends."""
    interim, reason, message = verdict
    pods.set_condition(job, interim, "True", reason, message)
    if terminating:
        return
    if interim == "SuccessCriteriaMet":
        pods.set_condition(job, "Complete", "True", reason, message)
        job["status"]["completionTime"] = clock.now()
    else:
        pods.set_condition(job, "Failed", "True", reason, message)


def is_finished(job: Object) -> bool:
    return pods.is_true(job, "Complete") or pods.is_true(job, "Failed")


def is_uncounted(pod: Object) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def only_failed_are_replaced(job: Object) -> bool:
    return job["spec"].get("podReplacementPolicy") == "Failed" or "podFailurePolicy" in job["spec"]


def has_failed(pod: Object, job: Object) -> bool:
    """A deleted pod counts as failed before it has ended, unless only failed ones are replaced."""
    return pods.phase(pod) == "Failed" or (pods.is_terminating(pod) and not only_failed_are_replaced(job))


def succeeded_of(job: Object, job_pods: list[Object]) -> int:
    """Complete indexes; without indexes, the pods that were counted and those that are to be."""
    if indexes.is_indexed(job):
        return len(indexes.completed(job, job_pods))
    new = [pod for pod in job_pods if is_uncounted(pod) and pods.phase(pod) == "Succeeded"]
    return int(job["status"].get("succeeded", 0)) + len(new)


def pod_of(job: Object, index: int) -> Object:
    """A pod of the Job's template; of an Indexed Job, the pod of that index."""
    pod: Object = copy.deepcopy(job["spec"]["template"])
    metadata, name = pod.setdefault("metadata", {}), job["metadata"]["name"]
    metadata["finalizers"] = [TRACKING]
    metadata["ownerReferences"] = [reference_to(job)]
    metadata["generateName"] = f"{name}-"
    if indexes.is_indexed(job):
        metadata["generateName"] = f"{name}-{index}-"
        metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(index)}
        metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
        pod["spec"]["hostname"] = f"{name}-{index}"
        source = {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}}
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            container["env"] = [*container.get("env", ()), {"name": "JOB_COMPLETION_INDEX", **source}]
    return pod


def _set_or_drop(status: Object, field: str, value: object) -> None:
    """Fields with `omitempty` are left out when they are empty."""
    if value:
        status[field] = value
    else:
        status.pop(field, None)

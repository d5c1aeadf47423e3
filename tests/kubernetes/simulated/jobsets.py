"""The JobSet controller (kubernetes-sigs/jobset, v0.12): child Jobs, their Service, and what becomes of both."""

import copy
import hashlib
import re
from collections.abc import Iterable

from tests.kubernetes.simulated import jobs, pods
from tests.kubernetes.simulated.controllers import Key, Manager, own_or_owned, owned_by, reference_to
from tests.kubernetes.simulated.kinds import JOB_SETS, JOBS, SERVICES, Object
from tests.kubernetes.simulated.store import Change

PREFIX = "jobset.sigs.k8s.io"
RESTARTS = f"{PREFIX}/restart-attempt"
COMPONENT = "jobset-controller"


class JobSets:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events

    def keys(self, change: Change) -> Iterable[Key]:
        return own_or_owned(change, JOB_SETS, [JOBS])

    def sync(self, key: Key) -> None:
        job_set = self._store.get(JOB_SETS, *key)
        if job_set is None or "deletionTimestamp" in job_set["metadata"]:
            return
        children = owned_by(self._store, JOBS, job_set)
        attempt = str(job_set["status"].get("restarts", 0))
        current = [job for job in children if job["metadata"]["labels"][RESTARTS] == attempt]
        job_set = self._registry.change(JOB_SETS, job_set, lambda it: _write_statuses(it, current))
        if is_finished(job_set):
            self._delete([job for job in current if not jobs.is_finished(job)])
            return
        self._delete([job for job in children if job not in current])
        if failed := [job for job in current if pods.is_true(job, "Failed")]:
            self._fail(job_set, min(failed, key=_failed_at))
        elif len(complete(current)) == sum(replicated["replicas"] for replicated in job_set["spec"]["replicatedJobs"]):
            self._end(job_set, "Completed", "AllJobsCompleted", "jobset completed successfully")
        elif len(current) == len(children):  # names of jobs that are being deleted are taken
            self._keep(job_set, current)

    def _keep(self, job_set: Object, current: list[Object]) -> None:
        """Create what is missing; suspend or resume what is there."""
        network, namespace = job_set["spec"]["network"], job_set["metadata"]["namespace"]
        if network["enableDNSHostnames"] and not self._store.get(SERVICES, namespace, subdomain(job_set)):
            self._registry.create(SERVICES, namespace, _service(job_set))
        names = {job["metadata"]["name"] for job in current}
        for replicated in job_set["spec"]["replicatedJobs"]:
            for index in range(replicated["replicas"]):
                job = job_of(job_set, replicated, index)
                if job["metadata"]["name"] not in names:
                    self._registry.create(JOBS, namespace, job)
        for job in [candidate for candidate in current if not jobs.is_finished(candidate)]:
            self._registry.change(JOBS, job, lambda it: it["spec"].update(suspend=job_set["spec"]["suspend"]))
        self._tell_suspension(job_set)

    def _tell_suspension(self, job_set: Object) -> None:
        suspended = job_set["spec"]["suspend"]
        reason = ("SuspendedJobs", "jobset is suspended") if suspended else ("ResumeJobs", "jobset is resumed")
        if suspended != pods.is_true(job_set, "Suspended"):
            status = "True" if suspended else "False"
            self._registry.change(JOB_SETS, job_set, lambda it: pods.set_condition(it, "Suspended", status, *reason))
            self._events.normal(job_set, *reason, COMPONENT)

    def _fail(self, job_set: Object, job: Object) -> None:
        """Follow the rule of the failure policy, or restart as often as the policy allows; without a policy, never."""
        policy, restarts = job_set["spec"].get("failurePolicy"), job_set["status"].get("restarts", 0)
        first = job["metadata"]["name"]
        if policy and _action(policy, job) == "FailJobSet":
            message = f"applying FailJobSet failure policy action (first failed job: {first})"
            self._end(job_set, "Failed", "FailJobSetFailurePolicyAction", message)
        elif policy is None:
            message = f"jobset failed due to one or more job failures (first failed job: {first})"
            self._end(job_set, "Failed", "FailedJobs", message)
        elif restarts >= policy.get("maxRestarts", 0):
            message = f"jobset failed due to reaching max number of restarts (first failed job: {first})"
            self._end(job_set, "Failed", "ReachedMaxRestarts", message)
        else:
            self._registry.change(JOB_SETS, job_set, lambda it: it["status"].update(restarts=restarts + 1))
            self._events.warning(job_set, "Restarting", f"restarting jobset, attempt {restarts + 1}", COMPONENT)

    def _end(self, job_set: Object, terminal: str, reason: str, message: str) -> None:
        def end(it: Object) -> None:
            pods.set_condition(it, terminal, "True", reason, message)
            it["status"]["terminalState"] = terminal

        self._registry.change(JOB_SETS, job_set, end)
        tell = self._events.warning if terminal == "Failed" else self._events.normal
        tell(job_set, reason, message, COMPONENT)

    def _delete(self, jobs_to_delete: list[Object]) -> None:
        for job in jobs_to_delete:
            metadata = job["metadata"]
            if "deletionTimestamp" not in metadata:
                options = {"propagationPolicy": "Foreground"}
                self._registry.delete(JOBS, metadata["namespace"], metadata["name"], options)


def is_finished(job_set: Object) -> bool:
    return pods.is_true(job_set, "Completed") or pods.is_true(job_set, "Failed")


def complete(children: list[Object]) -> list[Object]:
    return [job for job in children if pods.is_true(job, "Complete")]


def subdomain(job_set: Object) -> str:
    return str(job_set["spec"]["network"].get("subdomain") or job_set["metadata"]["name"])


def job_of(job_set: Object, replicated: Object, index: int) -> Object:
    """A child Job: ``<jobset>-<replicated job>-<index>``, labelled as all its pods are."""
    name = f"{job_set['metadata']['name']}-{replicated['name']}-{index}"
    job: Object = copy.deepcopy(replicated["template"])
    marks = _marks(job_set, replicated, index, name)
    for marked in (job, job["spec"]["template"]):
        metadata = marked.setdefault("metadata", {})
        for kind in ("labels", "annotations"):
            metadata[kind] = {**(metadata.get(kind) or {}), **marks}
    job["metadata"] |= {"name": name, "ownerReferences": [reference_to(job_set)]}
    job["spec"]["suspend"] = job_set["spec"]["suspend"]
    if job_set["spec"]["network"]["enableDNSHostnames"]:
        job["spec"]["template"]["spec"]["subdomain"] = subdomain(job_set)
    return job


def _marks(job_set: Object, replicated: Object, index: int, name: str) -> dict[str, str]:
    metadata = job_set["metadata"]
    marks = {
        "jobset-name": metadata["name"],
        "jobset-uid": metadata["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": str(replicated["replicas"]),
        "restart-attempt": str(job_set["status"].get("restarts", 0)),
        "job-index": str(index),
        "job-key": hashlib.sha1(f"{metadata['namespace']}/{name}".encode()).hexdigest(),
    }
    return {f"{PREFIX}/{key}": value for key, value in marks.items()}


def _service(job_set: Object) -> Object:
    """Headless; it gives every pod of the JobSet its name in the DNS."""
    metadata = job_set["metadata"]
    spec = {
        "clusterIP": "None",
        "selector": {f"{PREFIX}/jobset-name": metadata["name"]},
        "publishNotReadyAddresses": job_set["spec"]["network"]["publishNotReadyAddresses"],
    }
    return {"metadata": {"name": subdomain(job_set), "ownerReferences": [reference_to(job_set)]}, "spec": spec}


def _action(policy: Object, job: Object) -> str:
    """The action of the first rule that fits the failed Job."""
    failure = next(candidate for candidate in job["status"]["conditions"] if candidate["type"] == "Failed")
    for rule in policy.get("rules") or ():
        reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
        matches = not patterns or any(re.search(pattern, failure["message"]) for pattern in patterns)
        if (not reasons or failure["reason"] in reasons) and matches:
            return str(rule["action"])
    return "RestartJobSet"


def _failed_at(job: Object) -> str:
    condition = pods.condition(job, "Failed")
    assert condition
    return str(condition["lastTransitionTime"])


def _write_statuses(job_set: Object, children: list[Object]) -> None:
    status = job_set["status"]
    status["restarts"] = status.get("restarts", 0)
    status["replicatedJobsStatus"] = [
        {"name": replicated["name"], **_counts([job for job in children if _is_of(job, replicated["name"])])}
        for replicated in job_set["spec"]["replicatedJobs"]
    ]


def _is_of(job: Object, replicated: str) -> bool:
    return bool(job["metadata"]["labels"][f"{PREFIX}/replicatedjob-name"] == replicated)


def _counts(children: list[Object]) -> dict[str, int]:
    """How many child Jobs are in each state; a Job is ready once each of its pods is ready or has succeeded."""
    live = [job for job in children if not jobs.is_finished(job)]
    return {
        "ready": sum(_is_ready(job) for job in live),
        "succeeded": len(complete(children)),
        "failed": sum(pods.is_true(job, "Failed") for job in children),
        "active": sum(job["status"].get("active", 0) > 0 for job in live),
        "suspended": sum(job["spec"]["suspend"] for job in live),
    }


def _is_ready(job: Object) -> bool:
    spec, status = job["spec"], job["status"]
    expected = min(spec["parallelism"], spec.get("completions") or spec["parallelism"])
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= expected)

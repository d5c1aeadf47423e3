"""A job as an Indexed Job with a headless Service: what every cluster has."""

from resources.kubernetes import objects, pods, queues
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import CONTAINER, JOB, JOBS, SERVICES, Object
from resources.kubernetes.placement import least, size
from resources.kubernetes.workloads import conditions, pod_job
from resources.kubernetes.workloads.protocol import Reading
from resources.launcher.protocol import Job, State

LEAST = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job: Kueue admits it with as few pods where there is no quota for all."""
AS_MANY_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Annotation of a Job: Kueue, admitting it with fewer pods, expects as many to complete."""


class IndexedJob:
    """batch/v1."""

    resource = JOBS
    container = CONTAINER

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[Object]:
        metadata = pods.metadata(name, job)
        template = pods.template(name, job, cluster, rendezvous=f"{name}-0.{name}")
        template["spec"]["subdomain"] = name
        labelled = {
            "name": name,
            "labels": {**metadata["labels"], **queues.labels(cluster)},
            "annotations": {**metadata["annotations"], **_partial_admission(job, cluster)},
        }
        return [
            objects.of(SERVICES, metadata, _headless(name)),
            *queues.pod_groups(metadata, job, cluster),
            objects.of(self.resource, labelled, {**pod_job.spec(job, template), **queues.suspension(cluster)}),
        ]

    def read(self, main: Object) -> Reading:
        if ended := conditions.ended(main, succeeded="Complete", failed="Failed"):
            return ended
        if main["spec"].get("suspend"):
            return conditions.suspended(main)
        return _live(main)


def _live(job: Object) -> Reading:
    held, status = conditions.holding(job), job.get("status", {})
    at, began = conditions.submitted_at(job), conditions.seconds(status.get("startTime"))
    for kind, state in (("FailureTarget", State.FAILED), ("SuccessCriteriaMet", State.SUCCEEDED)):
        if kind in held:
            disrupted, reason = conditions.is_disruption(held[kind]), f"is ending: {conditions.why(held[kind])}"
            return Reading(State.RUNNING, reason, disrupted, ending=state, submitted_at=at, started_at=began)
    ready, wanted = status.get("ready", 0) + status.get("succeeded", 0), job["spec"]["parallelism"]
    if ready:
        reason = "" if ready >= wanted else f"{ready} of {wanted} pods are ready"
        return Reading(State.RUNNING, reason, submitted_at=at, started_at=began)
    reason = f"none of its {wanted} pods is ready" if status.get("active") else "it has no pods yet"
    return Reading(State.PENDING, reason, submitted_at=at)


def _headless(name: str) -> Object:
    """Names for the pods, before they are ready too: they are only when all have met."""
    return {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB: name}}


def _partial_admission(job: Job, cluster: Cluster) -> dict[str, str]:
    fewer = cluster.queue and least(job) < size(job)
    return {LEAST: str(least(job)), AS_MANY_COMPLETIONS: "true"} if fewer else {}

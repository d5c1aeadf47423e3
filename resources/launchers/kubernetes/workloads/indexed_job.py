"""A job as an Indexed Job with a headless Service. Every cluster supports it."""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import (
    JOB,
    JOBS,
    SERVICES,
    KubernetesObject,
    condition_reason,
    holding_conditions,
    time_seconds,
)
from slipway.resources.launchers.kubernetes import pods, queues, store
from slipway.resources.launchers.kubernetes.workloads import pod_job, readings
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload, WorkloadReading
from slipway.resources.launchers.protocol import Job, JobState

LEAST = "kueue.x-k8s.io/job-min-parallelism"
"""The annotation of a Job with the number of pods with which Kueue may admit it if the quota is too small for all."""
AS_MANY_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""The annotation of a Job that Kueue admits with fewer pods: only these pods must complete."""


class IndexedJob(Workload):
    """A Job of batch/v1."""

    name = "job"
    resource = JOBS
    parts = (SERVICES,)

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        metadata = pods.metadata(name, job)
        template = pods.template(name, job, cluster)
        template["spec"]["subdomain"] = name
        labelled = {
            "name": name,
            "labels": {**metadata["labels"], **queues.labels(cluster)},
            "annotations": {**metadata["annotations"], **_partial_admission(job, cluster)},
        }
        return [
            *store.parts(name, job, cluster, template),
            objects.of(SERVICES, metadata, _headless(name)),
            *queues.pod_groups(metadata, job, cluster),
            objects.of(self.resource, labelled, {**pod_job.spec(job, template), **queues.suspension(cluster)}),
        ]

    def read(self, main: KubernetesObject) -> WorkloadReading:
        ended = readings.ended(main, succeeded="Complete", failed="Failed")
        if ended:
            return ended
        if main["spec"].get("suspend"):
            return readings.suspended(main)
        return _live(main)


def _live(job: KubernetesObject) -> WorkloadReading:
    conditions = holding_conditions(job)
    status = job.get("status", {})
    at = readings.submitted_at(job)
    began = time_seconds(status.get("startTime"))
    for kind, state in (("FailureTarget", JobState.FAILED), ("SuccessCriteriaMet", JobState.SUCCEEDED)):
        if kind in conditions:
            disrupted = readings.is_disruption(conditions[kind])
            reason = f"is ending: {condition_reason(conditions[kind])}"
            return WorkloadReading(JobState.RUNNING, reason, disrupted, ending=state, submitted_at=at, started_at=began)
    ready = status.get("ready", 0) + status.get("succeeded", 0)
    parallelism = job["spec"]["parallelism"]
    if ready:
        reason = "" if ready >= parallelism else f"{ready} of {parallelism} pods are ready"
        return WorkloadReading(JobState.RUNNING, reason, submitted_at=at, started_at=began)
    reason = f"none of its {parallelism} pods is ready" if status.get("active") else "it has no pods yet"
    return WorkloadReading(JobState.PENDING, reason, submitted_at=at)


def _headless(name: str) -> KubernetesObject:
    """The Service that gives the pods host names, even before they are ready, since they are ready only once all have
    connected."""
    return {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB: name}}


def _partial_admission(job: Job, cluster: Cluster) -> dict[str, str]:
    fewer = cluster.queue and job.least_nodes < job.node_count
    return {LEAST: str(job.least_nodes), AS_MANY_COMPLETIONS: "true"} if fewer else {}

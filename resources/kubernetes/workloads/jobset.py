"""A job as a JobSet of one Job, which gives the pods their names in the DNS."""

from resources.kubernetes import objects, pods, queues
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import CONTAINER, JOB_SETS, Object
from resources.kubernetes.workloads import conditions, pod_job
from resources.kubernetes.workloads.protocol import Reading
from resources.launcher.protocol import Job

NODE = "node"
"""The one ReplicatedJob: its pods are called JOBSET-node-0-INDEX."""


class JobSet:
    """The kind of choice where its controller is installed."""

    resource = JOB_SETS
    container = CONTAINER

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[Object]:
        metadata = pods.metadata(name, job)
        labelled = {**metadata, "labels": {**metadata["labels"], **queues.labels(cluster)}}
        spec = {**job_set_spec(name, job, cluster), **queues.suspension(cluster)}
        return [*queues.pod_groups(metadata, job, cluster), objects.of(self.resource, labelled, spec)]

    def read(self, main: Object) -> Reading:
        if ended := conditions.ended(main, succeeded="Completed", failed="Failed"):
            return ended
        if main["spec"].get("suspend"):
            return conditions.suspended(main)
        return conditions.replicated(main, main.get("status", {}).get("replicatedJobsStatus") or ())


def job_set_spec(name: str, job: Job, cluster: Cluster) -> Object:
    """Of a JobSet that restarts nothing."""
    template = pods.template(name, job, cluster, rendezvous=f"{name}-{NODE}-0-0.{name}")
    replicated = {
        "name": NODE,
        "replicas": 1,
        "template": {"metadata": {"labels": pods.labels(name, job)}, "spec": pod_job.spec(job, template)},
    }
    # The pods find each other before they are ready: they are only when all have met.
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name}
    return {"failurePolicy": _failure_policy(), "network": network, "replicatedJobs": [replicated]}


def _failure_policy() -> Object:
    """The JobSet says no more than which rule fired: this one for what the Job's pod failure policy calls a disruption.

    Whatever else fails a Job is a restart too many.
    """
    disruption = {
        "name": "disruption",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": ["DisruptionTarget"],
    }
    return {"maxRestarts": 0, "rules": [disruption]}

"""A job as a JobSet of one Job. The JobSet gives the pods their DNS names."""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import KubernetesObject, Resource
from slipway.resources.launchers.kubernetes import pods, queues, store
from slipway.resources.launchers.kubernetes.workloads import pod_job, readings
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload, WorkloadReading
from slipway.resources.launchers.protocol import Job

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", operator="JobSet")
NODE = "node"
"""The only ReplicatedJob; the names of its pods are JOBSET-node-0-INDEX."""


class JobSet(Workload):
    """A JobSet of jobset.x-k8s.io, the default."""

    name = "jobset"
    resource = JOB_SETS

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        metadata = pods.metadata(name, job)
        labelled = {**metadata, "labels": {**metadata["labels"], **queues.labels(cluster)}}
        spec = {**job_set_spec(name, job, cluster), **queues.suspension(cluster)}
        template = pods.template(name, job, cluster)
        return [
            *store.parts(name, job, cluster, template),
            *queues.pod_groups(metadata, job, cluster),
            objects.of(self.resource, labelled, spec),
        ]

    def read(self, main: KubernetesObject) -> WorkloadReading:
        ended = readings.ended(main, succeeded="Completed", failed="Failed")
        if ended:
            return ended
        if main["spec"].get("suspend"):
            return readings.suspended(main)
        return readings.replicated(main, main.get("status", {}).get("replicatedJobsStatus") or ())


def job_set_spec(name: str, job: Job, cluster: Cluster) -> KubernetesObject:
    """The spec of a JobSet without restarts."""
    template = pods.template(name, job, cluster)
    replicated = {
        "name": NODE,
        "replicas": 1,
        "template": {"metadata": {"labels": pods.labels(name, job)}, "spec": pod_job.spec(job, template)},
    }
    # The pods must find one another before they are ready, since they are ready only once all have connected.
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name}
    return {"failurePolicy": _failure_policy(), "network": network, "replicatedJobs": [replicated]}


def _failure_policy() -> KubernetesObject:
    """The rule that fails the JobSet after a disruption, as defined by the Job's pod failure policy.

    The status of a JobSet only says which rule fired. Any other failure of the Job exceeds `maxRestarts`, and so fails
    the JobSet with another reason.
    """
    disruption = {
        "name": "disruption",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": ["DisruptionTarget"],
    }
    return {"maxRestarts": 0, "rules": [disruption]}

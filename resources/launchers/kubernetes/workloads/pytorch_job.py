"""A job as a Kubeflow PyTorchJob with workers only.

With a master, the controller would add an init container of another image to every worker, whose security context
violates the Pod Security Standard `restricted`. torchrun needs no master, since the rendezvous store has its own pod.
"""

import dataclasses

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import CONTAINER, KubernetesObject, Resource, holding_conditions, time_seconds
from slipway.resources.launchers.kubernetes import pods, queues, store
from slipway.resources.launchers.kubernetes.workloads import readings
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload, WorkloadReading
from slipway.resources.launchers.protocol import Job, JobState
from slipway.trainer.node.agent import INDEX_VARIABLE

PYTORCH_JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", operator="the Kubeflow training operator")
INDEX = "metadata.labels['training.kubeflow.org/replica-index']"
"""The label with a worker's index, which the controller sets."""


class PyTorchJob(Workload):
    """A PyTorchJob of kubeflow.org/v1, of the training operator. It always starts all pods of a job."""

    name = "pytorchjob"
    resource = PYTORCH_JOBS
    container = "pytorch"
    """The name that the controller's webhook requires."""

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        fixed_size = dataclasses.replace(job, least=0)
        metadata = pods.metadata(name, job)
        labelled = {**metadata, "labels": {**metadata["labels"], **queues.labels(cluster)}}
        workers = {
            "replicas": job.node_count,
            "restartPolicy": "Never",
            "template": self._template(name, fixed_size, cluster),
        }
        policy = {"backoffLimit": 0, "cleanPodPolicy": "Running", **queues.suspension(cluster)}
        spec = {"runPolicy": policy, "pytorchReplicaSpecs": {"Worker": workers}}
        return [
            *store.parts(name, fixed_size, cluster, pods.template(name, fixed_size, cluster)),
            *queues.pod_groups(metadata, fixed_size, cluster),
            objects.of(self.resource, labelled, spec),
        ]

    def _template(self, name: str, job: Job, cluster: Cluster) -> KubernetesObject:
        """The pod template, with the container name that the controller requires and the index from its label."""
        template = pods.template(name, job, cluster)
        template["metadata"]["annotations"][pods.DEFAULT_CONTAINER] = self.container
        del template["spec"]["restartPolicy"]  # the controller accepts only the one of the workers
        for container in template["spec"]["containers"]:
            if container["name"] == CONTAINER:
                container["name"] = self.container
                container["env"].append({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": INDEX}}})
        return template

    def read(self, main: KubernetesObject) -> WorkloadReading:
        ended = readings.ended(main, succeeded="Succeeded", failed="Failed")
        if ended:
            return ended
        if main["spec"]["runPolicy"].get("suspend"):
            return readings.suspended(main)
        at = readings.submitted_at(main)
        running = holding_conditions(main).get("Running")
        if running:
            began = time_seconds(running.get("lastTransitionTime"))
            return WorkloadReading(JobState.RUNNING, submitted_at=at, started_at=began)
        workers = main.get("status", {}).get("replicaStatuses", {}).get("Worker")
        return WorkloadReading(
            JobState.PENDING, "none of its pods runs" if workers else "it has no pods yet", submitted_at=at
        )

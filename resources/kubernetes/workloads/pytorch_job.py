"""A job as a Kubeflow PyTorchJob of workers alone.

A master would bring the controller's init container into every worker: another image, with another security context
than the Pod Security Standard `restricted` asks for. torchrun needs none: the first worker hosts the rendezvous.
"""

import dataclasses

from resources.kubernetes import objects, pods, queues
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import CONTAINER, PYTORCH_JOBS, Object
from resources.kubernetes.placement import size
from resources.kubernetes.workloads import conditions
from resources.kubernetes.workloads.protocol import Reading
from resources.launcher.protocol import Job, State
from trainer.agent import INDEX_VARIABLE

INDEX = "metadata.labels['training.kubeflow.org/replica-index']"
"""Where the controller writes a worker's place in the job."""


class PyTorchJob:
    """kubeflow.org/v1, of the training operator; it does not know of jobs that can do with fewer pods."""

    resource = PYTORCH_JOBS
    container = "pytorch"
    """As the controller's webhook wants it."""

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[Object]:
        whole = dataclasses.replace(job, least=0)
        metadata = pods.metadata(name, job)
        labelled = {**metadata, "labels": {**metadata["labels"], **queues.labels(cluster)}}
        workers = {
            "replicas": size(job),
            "restartPolicy": "Never",
            "template": self._template(name, whole, cluster),
        }
        policy = {"backoffLimit": 0, "cleanPodPolicy": "Running", **queues.suspension(cluster)}
        spec = {"runPolicy": policy, "pytorchReplicaSpecs": {"Worker": workers}}
        return [*queues.pod_groups(metadata, whole, cluster), objects.of(self.resource, labelled, spec)]

    def _template(self, name: str, job: Job, cluster: Cluster) -> Object:
        """The container has the controller's name and learns its place from the controller's label."""
        template = pods.template(name, job, cluster, rendezvous=f"{name}-worker-0")
        template["metadata"]["annotations"][pods.DEFAULT_CONTAINER] = self.container
        del template["spec"]["restartPolicy"]  # the workers' own says it, and two are one too many for the controller
        for container in template["spec"]["containers"]:
            if container["name"] == CONTAINER:
                container["name"] = self.container
                container["env"].append({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": INDEX}}})
        return template

    def read(self, main: Object) -> Reading:
        if ended := conditions.ended(main, succeeded="Succeeded", failed="Failed"):
            return ended
        if main["spec"]["runPolicy"].get("suspend"):
            return conditions.suspended(main)
        at = conditions.submitted_at(main)
        if running := conditions.holding(main).get("Running"):
            began = conditions.seconds(running.get("lastTransitionTime"))
            return Reading(State.RUNNING, submitted_at=at, started_at=began)
        workers = main.get("status", {}).get("replicaStatuses", {}).get("Worker")
        return Reading(State.PENDING, "none of its pods runs" if workers else "it has no pods yet", submitted_at=at)

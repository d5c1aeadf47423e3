"""Kubernetes' objects as plain JSON documents: the resources that we use, and what we write on objects."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""One object, as the API has it."""

JOB = "slipway/job"
"""Label of all that belongs to one job: the name of its objects."""
NAME = "slipway/name"
"""Annotation: the job's name as the launcher was given it, before it was made fit for Kubernetes."""
TRAINING, INCARNATION, RUN = "slipway/training", "slipway/incarnation", "slipway/run"
"""Labels for people and tools."""
CONTAINER = "trainer"
"""The container of a pod template, as patches call it; `Workload.container` is what it is called in the end."""


@dataclass(frozen=True)
class Resource:
    """A kind of object, and where the API has it."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
EVENTS = Resource("", "v1", "Event", "events")
JOBS = Resource("batch", "v1", "Job", "jobs")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
PODS = Resource("", "v1", "Pod", "pods")
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
SERVICES = Resource("", "v1", "Service", "services")
TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
TRAINING_RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")


def of(resource: Resource, metadata: Object, spec: Object) -> Object:
    """An object of that kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


PARTS = {
    kind.kind: kind for kind in (SERVICES, POD_GROUPS, JOBS, JOB_SETS, TRAINING_RUNTIMES, TRAIN_JOBS, PYTORCH_JOBS)
}
"""What jobs are made of, by kind."""


def resource_of(part: Object) -> Resource:
    """Where the API has an object of a job."""
    return PARTS[part["kind"]]

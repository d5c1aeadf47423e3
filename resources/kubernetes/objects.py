"""Kubernetes' objects as plain JSON documents: the kinds that every cluster has, and the labels that we write."""

from dataclasses import dataclass
from typing import Any

KubernetesObject = dict[str, Any]
"""One object, as the API has it."""

JOB = "slipway/job"
"""Label of every object of a job: the name of these objects."""
NAME = "slipway/name"
"""Annotation: the job's own name, of which Kubernetes may not accept every character."""
CONTAINER = "trainer"
"""The name of the container in pod templates and patches; a kind of workload may rename it (`Workload.container`)."""


@dataclass(frozen=True)
class Resource:
    """A kind of object, and its place in the API."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    operator: str = ""
    """What installs it; empty for what every cluster has."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
EVENTS = Resource("", "v1", "Event", "events")
JOBS = Resource("batch", "v1", "Job", "jobs")
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
PODS = Resource("", "v1", "Pod", "pods")
SERVICES = Resource("", "v1", "Service", "services")


def of(resource: Resource, metadata: KubernetesObject, spec: KubernetesObject) -> KubernetesObject:
    """An object of that kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}

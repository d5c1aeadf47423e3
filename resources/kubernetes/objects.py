"""Kubernetes objects as plain JSON documents: the kinds that every cluster has, and Slipway's labels.

It also reads the conditions and times of objects. `ClusterReader` and `ClusterWriter` are the interfaces for reading
and changing objects, over HTTP or in a mirror.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

KubernetesObject = dict[str, Any]
"""One object, as in the API."""
JOB = "slipway/job"
"""The label of every object of a job, with the name of these objects."""
NAME = "slipway/name"
"""The annotation with the job's own name, which may have characters that Kubernetes does not accept in names."""
CONTAINER = "trainer"
"""The name of the container in pod templates and patches; a kind of workload may rename it (`Workload.container`)."""


@dataclass(frozen=True)
class Resource:
    """A kind of object in the API."""

    group: str
    """The API group; empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    operator: str = ""
    """The operator that installs it; empty if every cluster has it."""

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
    """An object of this kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def holding_conditions(document: KubernetesObject) -> dict[str, KubernetesObject]:
    """The conditions that are True, by type."""
    return {
        condition["type"]: condition
        for condition in document.get("status", {}).get("conditions") or ()
        if condition["status"] == "True"
    }


def condition_reason(condition: Mapping[str, str]) -> str:
    """The message and the reason of a condition, as one text."""
    message = condition.get("message", "")
    reason = condition.get("reason", "")
    if message and reason:
        return f"{message} ({reason})"
    return message or reason


def time_seconds(text: str | None) -> float | None:
    """A time of the API (RFC 3339) as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else None


class ClusterReader(Protocol):
    """Reads objects. Every method raises `slipway.resources.errors.Unavailable` if the cluster does not answer."""

    def get(self, resource: Resource, name: str) -> KubernetesObject | None:
        """The object with this name, or None."""

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[KubernetesObject]:
        """All objects with these labels in the namespace, by default the platform's own."""


class ClusterWriter(ClusterReader, Protocol):
    """Also changes objects."""

    def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> KubernetesObject:
        """Merge the change (RFC 7386) into the object, and return the result.

        Raises Unavailable if the change has a `metadata.resourceVersion` that the object no longer has, and ValueError
        if the cluster rejects the change.
        """

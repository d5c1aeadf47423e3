"""Kubernetes' objects as plain JSON documents: the kinds that every cluster has, and the labels that we write.

Every object has conditions and times, which are read here. `ClusterReader` and `ClusterWriter` are who reads and
changes them, over HTTP or in a mirror.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

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


def holding_conditions(document: KubernetesObject) -> dict[str, KubernetesObject]:
    """The conditions that hold, by type."""
    return {
        condition["type"]: condition
        for condition in document.get("status", {}).get("conditions") or ()
        if condition["status"] == "True"
    }


def condition_reason(condition: Mapping[str, str]) -> str:
    """The message and the reason of a condition."""
    message, reason = condition.get("message", ""), condition.get("reason", "")
    return f"{message} ({reason})" if message and reason else message or reason


def time_seconds(text: str | None) -> float | None:
    """A time of the API (RFC 3339) as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else None


class ClusterReader(Protocol):
    """Every method raises `slipway.resources.errors.Unavailable` when the cluster cannot be asked."""

    def get(self, resource: Resource, name: str) -> KubernetesObject | None:
        """The object of that name, None when there is none."""

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[KubernetesObject]:
        """All objects with these labels, in the namespace or, without one, in the platform's own."""


class ClusterWriter(ClusterReader, Protocol):
    """Also changes objects."""

    def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> KubernetesObject:
        """Merge the change (RFC 7386) into the object; returns the object after that.

        Raises Unavailable for a change with a `metadata.resourceVersion` that the object no longer has, and ValueError
        where the cluster refuses the change.
        """

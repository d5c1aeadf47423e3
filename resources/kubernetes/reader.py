"""The interfaces that read and change a cluster's objects: over HTTP, or from a mirror of them."""

from collections.abc import Mapping
from typing import Any, Protocol

from slipway.resources.kubernetes.objects import KubernetesObject, Resource


class ClusterReader(Protocol):
    """Every method raises `slipway.resources.unavailable.Unavailable` when the cluster cannot be asked."""

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

"""What reads and changes a cluster's objects, as far as the fleet needs it: over HTTP, or from a mirror of them."""

from collections.abc import Mapping
from typing import Any, Protocol

from resources.kubernetes.objects import Object, Resource


class Reader(Protocol):
    """All raise `resources.launcher.protocol.Unavailable` when the cluster cannot be asked."""

    def get(self, resource: Resource, name: str) -> Object | None:
        """The object of that name, None when there is none."""

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[Object]:
        """All objects with these labels, in the namespace or, without one, in the platform's own."""


class Writer(Reader, Protocol):
    """Also changes objects."""

    def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> Object:
        """Merge the change (RFC 7386) into the object, and give back what became of it.

        One with `metadata.resourceVersion` is refused when the object is not at that version any more. Raises
        ValueError where the cluster refuses the change.
        """

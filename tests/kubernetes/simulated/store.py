"""The objects and every change made to them, as etcd and the API server's watch cache keep them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tests.kubernetes.simulated import errors
from tests.kubernetes.simulated.kinds import Object, Resource


@dataclass(frozen=True)
class Change:
    """One write. Revisions count the writes of the whole cluster, as those of etcd do."""

    revision: int
    event: Literal["ADDED", "MODIFIED", "DELETED"]
    resource: Resource
    object: Object
    """The object now; for a deletion, its last state."""
    before: Object | None = None


def where(object: Object) -> tuple[str, str]:
    """Namespace, empty for objects of the cluster, and name."""
    metadata = object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Store:
    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        """Changes up to this revision are forgotten."""
        self.listeners: list[Callable[[Change], None]] = []
        self._objects: dict[Resource, dict[tuple[str, str], Object]] = {}
        self._changes: list[Change] = []

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def all_of(self, resource: Resource, namespace: str = "") -> list[Object]:
        """By namespace and name, as etcd's keys are; of all namespaces where none is given."""
        objects = self._objects.get(resource, {})
        return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def everything(self) -> Iterator[tuple[Resource, Object]]:
        for resource, objects in list(self._objects.items()):
            for object in list(objects.values()):
                yield resource, object

    def put(self, resource: Resource, object: Object) -> Object:
        """Keep the object under the next revision, which its resourceVersion then says."""
        self.revision += 1
        object["metadata"]["resourceVersion"] = str(self.revision)
        objects = self._objects.setdefault(resource, {})
        before = objects.get(where(object))
        objects[where(object)] = object
        self._tell(Change(self.revision, "MODIFIED" if before else "ADDED", resource, object, before))
        return object

    def remove(self, resource: Resource, object: Object) -> Object:
        self.revision += 1
        before = self._objects[resource].pop(where(object))
        metadata = {**object["metadata"], "resourceVersion": str(self.revision)}
        last = {**object, "metadata": metadata}
        self._tell(Change(self.revision, "DELETED", resource, last, before))
        return last

    def since(self, revision: int) -> list[Change]:
        """The changes after a revision. Raises 410 Expired when the store has forgotten some."""
        if revision < self.compacted:
            raise errors.expired(f"too old resource version: {revision} ({self.compacted})")
        return [change for change in self._changes if change.revision > revision]

    def compact(self) -> None:
        """Forget the changes made so far."""
        self.compacted = self.revision
        self._changes.clear()

    def _tell(self, change: Change) -> None:
        self._changes.append(change)
        for listener in self.listeners:
            listener(change)

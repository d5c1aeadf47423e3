"""The garbage collector: removes objects with their owners (k8s.io/kubernetes/pkg/controller/garbagecollector)."""

from collections.abc import Iterable

from tests.kubernetes.simulated.controllers import Key, Manager
from tests.kubernetes.simulated.deletion import FOREGROUND, ORPHAN
from tests.kubernetes.simulated.kinds import Object, Resource
from tests.kubernetes.simulated.store import Change


class GarbageCollector:
    """Works on uids, not on names: an owner of the same name with another uid is another object."""

    def __init__(self, manager: Manager) -> None:
        self._registry, self._store = manager.registry, manager.store

    def keys(self, change: Change) -> Iterable[Key]:
        """An owner that was or will be removed, and a new object that names owners."""
        metadata = change.object["metadata"]
        if change.event == "DELETED" or {FOREGROUND, ORPHAN} & set(metadata.get("finalizers") or ()):
            yield "owner", metadata["uid"]
        if change.event != "DELETED" and metadata.get("ownerReferences"):
            yield "owned", metadata["uid"]
        if change.event == "DELETED":
            for reference in metadata.get("ownerReferences") or ():
                yield "owner", reference["uid"]

    def sync(self, key: Key) -> None:
        kind, uid = key
        everything = {object["metadata"]["uid"]: (resource, object) for resource, object in self._store.everything()}
        if kind == "owned":
            if uid in everything:
                self._delete_if_ownerless(*everything[uid], everything)
            return
        owned = [each for each in everything.values() if uid in _owners(each[1])]
        if uid not in everything:
            for each in owned:
                self._delete_if_ownerless(*each, everything)
        else:
            self._let_go(*everything[uid], owned)

    def _delete_if_ownerless(
        self, resource: Resource, object: Object, everything: dict[str, tuple[Resource, Object]]
    ) -> None:
        """Delete objects that have owners of which none is left or will be."""
        if not any(owner in everything for owner in _owners(object)) and _owners(object):
            self._delete(resource, object, "Background")

    def _let_go(self, resource: Resource, owner: Object, owned: list[tuple[Resource, Object]]) -> None:
        finalizers = owner["metadata"].get("finalizers") or []
        if FOREGROUND in finalizers:
            for each in owned:
                self._delete(*each, "Foreground")
            if not [each for each in owned if self._is_there(*each)]:
                self._registry.change(resource, owner, lambda it: it["metadata"]["finalizers"].remove(FOREGROUND))
        elif ORPHAN in finalizers:
            for each in owned:
                self._registry.change(*each, lambda it: _disown(it, owner["metadata"]["uid"]))
            self._registry.change(resource, owner, lambda it: it["metadata"]["finalizers"].remove(ORPHAN))

    def _delete(self, resource: Resource, object: Object, policy: str) -> None:
        metadata = object["metadata"]
        if "deletionTimestamp" not in metadata and self._is_there(resource, object):
            place = (metadata.get("namespace", ""), metadata["name"])
            self._registry.delete(resource, *place, {"propagationPolicy": policy})

    def _is_there(self, resource: Resource, object: Object) -> bool:
        metadata = object["metadata"]
        found = self._store.get(resource, metadata.get("namespace", ""), metadata["name"])
        return found is not None and found["metadata"]["uid"] == metadata["uid"]


def _owners(object: Object) -> list[str]:
    return [reference["uid"] for reference in object["metadata"].get("ownerReferences") or ()]


def _disown(object: Object, owner: str) -> None:
    left = [each for each in object["metadata"].pop("ownerReferences") if each["uid"] != owner]
    if left:
        object["metadata"]["ownerReferences"] = left

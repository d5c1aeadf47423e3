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
        owned = [entry for entry in everything.values() if uid in _owners(entry[1])]
        if uid not in everything:
            for child in owned:
                self._delete_if_ownerless(*child, everything)
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
            for child in owned:
                self._delete(*child, "Foreground")
            if not [child for child in owned if self._is_there(*child)]:
                self._registry.change(resource, owner, lambda it: it["metadata"]["finalizers"].remove(FOREGROUND))
        elif ORPHAN in finalizers:
            for child in owned:
                self._registry.change(*child, lambda it: _disown(it, owner["metadata"]["uid"]))
            self._registry.change(resource, owner, lambda it: it["metadata"]["finalizers"].remove(ORPHAN))

    def _delete(self, resource: Resource, object: Object, policy: str) -> None:
        metadata = object["metadata"]
        if "deletionTimestamp" not in metadata and self._is_there(resource, object):
            target = (metadata.get("namespace", ""), metadata["name"])
            self._registry.delete(resource, *target, {"propagationPolicy": policy})

    def _is_there(self, resource: Resource, object: Object) -> bool:
        metadata = object["metadata"]
        stored = self._store.get(resource, metadata.get("namespace", ""), metadata["name"])
        return stored is not None and stored["metadata"]["uid"] == metadata["uid"]


def _owners(object: Object) -> list[str]:
    return [reference["uid"] for reference in object["metadata"].get("ownerReferences") or ()]


def _disown(object: Object, owner: str) -> None:
    references = [reference for reference in object["metadata"].pop("ownerReferences") if reference["uid"] != owner]
    if references:
        object["metadata"]["ownerReferences"] = references

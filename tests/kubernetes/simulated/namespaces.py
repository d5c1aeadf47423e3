"""Namespaces: their first objects, and the removal of their content (k8s.io/kubernetes/pkg/controller/namespace)."""

from collections.abc import Iterable

from tests.kubernetes.simulated.controllers import Key, Manager
from tests.kubernetes.simulated.kinds import NAMESPACES, SERVICE_ACCOUNTS
from tests.kubernetes.simulated.store import Change


class Namespaces:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store = manager.registry, manager.store

    def keys(self, change: Change) -> Iterable[Key]:
        """The namespace itself, or one that is to go and has lost something."""
        if change.resource == NAMESPACES and change.event != "DELETED":
            yield "", change.object["metadata"]["name"]
        elif change.event == "DELETED" and change.object["metadata"].get("namespace"):
            yield "", change.object["metadata"]["namespace"]

    def sync(self, key: Key) -> None:
        name = key[1]
        namespace = self._store.get(NAMESPACES, "", name)
        if namespace is None:
            return
        if "deletionTimestamp" not in namespace["metadata"]:
            if self._store.get(SERVICE_ACCOUNTS, name, "default") is None:
                self._registry.create(SERVICE_ACCOUNTS, name, {"metadata": {"name": "default"}})
            return
        namespace = self._registry.change(NAMESPACES, namespace, lambda it: it["status"].update(phase="Terminating"))
        inside = [entry for entry in self._store.everything() if entry[1]["metadata"].get("namespace") == name]
        for resource, object in inside:
            self._registry.delete(resource, name, object["metadata"]["name"], {"propagationPolicy": "Background"})
        if not [entry for entry in self._store.everything() if entry[1]["metadata"].get("namespace") == name]:
            self._registry.change(NAMESPACES, namespace, lambda it: it["spec"].pop("finalizers"))

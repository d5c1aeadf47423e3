"""The common part of all controllers: a queue of objects to look at, fed by every change (client-go's workqueue)."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tests.kubernetes.simulated.events import Events
from tests.kubernetes.simulated.kinds import Object, Resource
from tests.kubernetes.simulated.registry import Registry
from tests.kubernetes.simulated.store import Change, Store, where

Key = tuple[str, str]
"""Namespace and name."""


class Controller(Protocol):
    """Makes its objects come true. `sync` handles one object in its present state, and may be called at any time."""

    def keys(self, change: Change) -> Iterable[Key]:
        """The objects to look at after a change."""

    def sync(self, key: Key) -> None: ...


class Manager:
    """Runs controllers one after the other, within milliseconds of a change, until nothing is left to look at."""

    def __init__(self, store: Store) -> None:
        self.registry = Registry(store)
        self.events = Events(self.registry)
        self.errors: list[Exception] = []
        self._controllers: list[Controller] = []
        self._queue: dict[tuple[Controller, Key], None] = {}
        self._running = True
        store.listeners.append(self._changed)

    @property
    def store(self) -> Store:
        return self.registry.store

    def add(self, *controllers: Controller) -> None:
        self._controllers.extend(controllers)

    def enqueue(self, controller: Controller, key: Key) -> None:
        self._queue[controller, key] = None
        asyncio.get_running_loop().call_soon(self._work)

    def enqueue_after(self, seconds: float, controller: Controller, key: Key) -> None:
        asyncio.get_running_loop().call_later(seconds, self.enqueue, controller, key)

    def pause(self) -> None:
        """Whether the API server is away: then no controller can read or write."""
        self._running = False

    def resume(self) -> None:
        self._running = True
        self._work()

    def _changed(self, change: Change) -> None:
        for controller in self._controllers:
            for key in controller.keys(change):
                self.enqueue(controller, key)

    def _work(self) -> None:
        while self._running and self._queue:
            controller, key = next(iter(self._queue))
            del self._queue[controller, key]
            try:
                controller.sync(key)
            except Exception as error:  # raised when the cluster stops: a mistake of a controller fails the tests
                self.errors.append(error)


def own_or_owned(change: Change, kind: Resource, owned: Iterable[Resource]) -> Iterable[Key]:
    """An object of the kind itself, or the controller of an object of an owned kind."""
    if change.resource == kind:
        yield where(change.object)
    elif change.resource in owned:
        for reference in change.object["metadata"].get("ownerReferences") or ():
            if reference.get("controller") and reference["kind"] == kind.kind:
                yield change.object["metadata"].get("namespace", ""), reference["name"]


def owned_by(store: Store, resource: Resource, owner: Object) -> list[Object]:
    """The objects of a kind that an object controls."""
    uid, children = owner["metadata"]["uid"], store.all_of(resource, owner["metadata"]["namespace"])
    return [
        object
        for object in children
        if any(
            reference["uid"] == uid and reference.get("controller")
            for reference in object["metadata"].get("ownerReferences") or ()
        )
    ]


def reference_to(owner: Object) -> Object:
    """The owner reference for the objects that an object controls."""
    metadata = owner["metadata"]
    identity = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {**identity, "controller": True, "blockOwnerDeletion": True}

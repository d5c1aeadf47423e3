"""The mirror: the cluster's objects in this process, listed once and then watched, so that reads need no request.

A mirror that has received nothing for too long may be outdated, so it raises Unavailable instead of answering. (The
official client's informer does not know the age of its cache, waits on a dead connection for ever, and repeats a
rejected request without a pause.)
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import KubernetesObject, Resource

WATCH_SECONDS = 30
"""How long one watch lasts. On a quiet cluster, its end shows that the connection is alive."""
STALE_SECONDS = 60.0
"""The longest silence after which the mirror still answers."""
PAUSE_SECONDS = 1.0
"""The pause after a failed attempt to watch."""
ASKED_SECONDS = 5.0
"""How long lists of other kinds are cached: about one tick of the sensors, in which many jobs need the same list."""


class _MirroredKind:
    """All objects of one kind with a label, which a thread keeps up to date."""

    def __init__(self, client: Client, resource: Resource, selector: str) -> None:
        self._client = client
        self._resource = resource
        self._selector = selector
        self._objects: dict[str, KubernetesObject] = {}
        self._heard_at = 0.0
        self._trouble = "it is being listed"
        self._changed = threading.Condition()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name=f"mirror of {resource.plural}", daemon=True).start()

    def objects(self) -> dict[str, KubernetesObject]:
        """The objects by name. Raises Unavailable if they may be outdated."""
        with self._changed:
            self._changed.wait_for(lambda: self._heard_at, timeout=self._client.timeout_seconds)
            if not self._heard_at:
                raise Unavailable(f"the mirror of {self._resource.plural} is still empty: {self._trouble}")
            age = time.monotonic() - self._heard_at
            if age > STALE_SECONDS:
                what = f"the mirror of {self._resource.plural} has received nothing for {age:.0f} s"
                raise Unavailable(f"{what}: {self._trouble}")
            return dict(self._objects)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        version = ""
        while not self._closed.is_set():
            try:
                version = self._follow(version or self._list())
            except Unavailable as error:
                # A new list is simpler than finding out which events arrived before the watch broke off.
                version = ""
                self._trouble = str(error)
                self._closed.wait(PAUSE_SECONDS)

    def _list(self) -> str:
        """List all objects; returns the version of the list."""
        listing = self._client.listing(self._resource, self._selector)
        with self._changed:
            self._objects = {document["metadata"]["name"]: _slim(document) for document in listing.items}
            self._heard()
        return listing.version

    def _follow(self, version: str) -> str:
        """Watch from a version on; returns the version reached, or "" if the server's history is too short."""
        for event in self._client.watch(self._resource, self._selector, version, WATCH_SECONDS):
            if event["type"] == "ERROR" or self._closed.is_set():
                return ""
            version = event["object"]["metadata"]["resourceVersion"]
            self._take(event["type"], event["object"])
        with self._changed:
            self._heard()
        return version

    def _take(self, kind: str, document: KubernetesObject) -> None:
        with self._changed:
            if kind == "DELETED":
                self._objects.pop(document["metadata"]["name"], None)
            elif kind != "BOOKMARK":
                self._objects[document["metadata"]["name"]] = _slim(document)
            self._heard()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self._changed.notify_all()


_Objects = list[KubernetesObject]
_Question = tuple[Resource, frozenset[tuple[str, str]], str]
"""The key of a cached list: kind, labels and namespace."""


@dataclass(frozen=True)
class Mirror:
    """Implements `objects.ClusterReader`. It mirrors a kind from the first read of it on, and asks the API server for
    all other kinds. A process has one mirror; its threads end with the process.
    """

    client: Client
    labels_by_kind: Mapping[Resource, str]
    """The mirrored kinds, each with the label of the mirrored objects; an empty label for all objects."""
    _kinds: dict[Resource, _MirroredKind] = field(default_factory=dict, init=False, repr=False, compare=False)
    _begins: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _answers: dict[_Question, tuple[float, _Objects]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The cached lists, each with the monotonic time of the answer."""

    def get(self, resource: Resource, name: str) -> KubernetesObject | None:
        """The object with this name, or None. Raises Unavailable."""
        if resource not in self.labels_by_kind:
            return self.client.get(resource, name)
        return self._kind(resource).objects().get(name)

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[KubernetesObject]:
        """All objects with these labels. Raises Unavailable."""
        is_held = resource in self.labels_by_kind and self.labels_by_kind[resource] in ("", *labels)
        if not is_held or namespace not in ("", self.client.namespace):
            return self._from_the_server((resource, frozenset(labels.items()), namespace))
        return [document for document in self._kind(resource).objects().values() if _matches(document, labels)]

    def _from_the_server(self, question: _Question) -> _Objects:
        resource, labels, namespace = question
        at, document = self._answers.get(question, (float("-inf"), []))
        if time.monotonic() - at > ASKED_SECONDS:
            document = self.client.list(resource, dict(labels), namespace)
            self._answers[question] = time.monotonic(), document
        return document

    def close(self) -> None:
        """End the threads at their next event."""
        for kind in self._kinds.values():
            kind.close()

    def _kind(self, resource: Resource) -> _MirroredKind:
        with self._begins:
            if resource not in self._kinds:
                self._kinds[resource] = _MirroredKind(self.client, resource, self.labels_by_kind[resource])
            return self._kinds[resource]

    def __reduce__(self) -> tuple[type["Mirror"], tuple[Client, Mapping[Resource, str]]]:
        """Pickle the settings only, since another process has its own mirror."""
        return Mirror, (self.client, self.labels_by_kind)


def _matches(document: KubernetesObject, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (document["metadata"].get("labels") or {}).items()


def _slim(document: KubernetesObject) -> KubernetesObject:
    """The object without long parts that are never read: the managers of its fields, and a node's images."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    status = {key: value for key, value in (document.get("status") or {}).items() if key != "images"}
    return {**document, "metadata": metadata, "status": status}

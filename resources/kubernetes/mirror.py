"""A mirror of the cluster's objects in this process: listed once, then watched, so that reading costs no request.

A mirror that has heard nothing for too long may be out of date: it raises Unavailable instead of answering. (The
official client's informer does not know the age of its cache, waits on a dead connection for ever, and repeats a
refused request without a pause.)
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import KubernetesObject, Resource

WATCH_SECONDS = 30
"""How long one watch lasts. On a quiet cluster, its end is the sign that the connection lives."""
STALE_SECONDS = 60.0
"""The longest silence after which the mirror still answers."""
PAUSE_SECONDS = 1.0
"""Between a failed attempt to watch and the next."""
ASKED_SECONDS = 5.0
"""How long an answer about what is not held stays good: one tick of the sensors, in which many jobs ask the same."""


class _MirroredKind:
    """All objects of one kind that have a label, kept current by a thread."""

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
        """By name. Raises Unavailable when they may be out of date."""
        with self._changed:
            self._changed.wait_for(lambda: self._heard_at, timeout=self._client.timeout_seconds)
            if not self._heard_at:
                raise Unavailable(f"the mirror of {self._resource.plural} is still empty: {self._trouble}")
            age = time.monotonic() - self._heard_at
            if age > STALE_SECONDS:
                what = f"the mirror of {self._resource.plural} has heard nothing for {age:.0f} s"
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
                # A new list is simpler than finding out which events were taken before the watch broke off.
                version = ""
                self._trouble = str(error)
                self._closed.wait(PAUSE_SECONDS)

    def _list(self) -> str:
        """Take all objects as they are now; returns the version of the list."""
        listing = self._client.listing(self._resource, self._selector)
        with self._changed:
            self._objects = {document["metadata"]["name"]: _slim(document) for document in listing.items}
            self._heard()
        return listing.version

    def _follow(self, version: str) -> str:
        """Watch from a version on; returns the version reached, empty where the server's history is too short."""
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
"""A list that was asked for: kind, labels and namespace."""


@dataclass(frozen=True)
class Mirror:
    """Implements `reader.ClusterReader`. It holds a kind from the first question about it on, and asks the API server
    for everything else. A process has one; its threads end with the process.
    """

    client: Client
    labels_by_kind: Mapping[Resource, str]
    """The kinds that it holds, each with the label of those objects that it does; an empty label for all of them."""
    _kinds: dict[Resource, _MirroredKind] = field(default_factory=dict, init=False, repr=False, compare=False)
    _begins: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _answers: dict[_Question, tuple[float, _Objects]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The lists that the API server gave, each with the monotonic time of the answer."""

    def get(self, resource: Resource, name: str) -> KubernetesObject | None:
        """The object of that name, None when there is none. Raises Unavailable."""
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
        """Let the threads end when they next hear something."""
        for kind in self._kinds.values():
            kind.close()

    def _kind(self, resource: Resource) -> _MirroredKind:
        with self._begins:
            if resource not in self._kinds:
                self._kinds[resource] = _MirroredKind(self.client, resource, self.labels_by_kind[resource])
            return self._kinds[resource]

    def __reduce__(self) -> tuple[type["Mirror"], tuple[Client, Mapping[Resource, str]]]:
        """Another process has a mirror of its own."""
        return Mirror, (self.client, self.labels_by_kind)


def _matches(document: KubernetesObject, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (document["metadata"].get("labels") or {}).items()


def _slim(document: KubernetesObject) -> KubernetesObject:
    """The object without its long parts that are never read: the managers of its fields, a node's images."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    status = {key: value for key, value in (document.get("status") or {}).items() if key != "images"}
    return {**document, "metadata": metadata, "status": status}

"""The cluster's objects as this process has them: listed once, then watched, so that looking costs no request.

A mirror that has heard nothing for too long is not the truth: it says so, and does not answer. (The official client's
informer cannot tell how old its cache is, waits on a dead connection for ever and asks without pause when refused.)
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from resources.kubernetes.client import Client
from resources.kubernetes.objects import (
    CONFIG_MAPS,
    JOB,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    PYTORCH_JOBS,
    TRAIN_JOBS,
    WORKLOADS,
    Object,
    Resource,
)
from resources.kubernetes.queues import QUEUED_JOB
from resources.launcher.protocol import Unavailable

WATCH_SECONDS = 30
"""How long one watch lasts. Its end, and the next one's beginning, is what is heard of a quiet cluster."""
STALE_SECONDS = 60.0
"""For how long nothing may have been heard."""
PAUSE_SECONDS = 1.0
"""Between attempts to hear something again."""
ASKED_SECONDS = 5.0
"""For how long the answer to what is not held is good: a tick of the sensors, in which many jobs ask the same."""


class _Kind:
    """All objects of one kind that have a label, kept current by a thread."""

    def __init__(self, client: Client, resource: Resource, selector: str) -> None:
        self._client, self._resource, self._selector = client, resource, selector
        self._objects: dict[str, Object] = {}
        self._heard_at = 0.0
        self._trouble = "it is being listed"
        self._changed = threading.Condition()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name=f"mirror of {resource.plural}", daemon=True).start()

    def objects(self) -> dict[str, Object]:
        """By name. Raises Unavailable when they may be out of date."""
        with self._changed:
            self._changed.wait_for(lambda: self._heard_at, timeout=self._client.timeout_seconds)
            if not self._heard_at:
                raise Unavailable(f"the mirror of {self._resource.plural} is empty yet: {self._trouble}")
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
                # What was heard before it broke off must not be taken once more: listing it all is simpler.
                version, self._trouble = "", str(error)
                self._closed.wait(PAUSE_SECONDS)

    def _list(self) -> str:
        """Take all objects as they are now; the version that they have together."""
        listing = self._client.listing(self._resource, self._selector)
        with self._changed:
            self._objects = {found["metadata"]["name"]: _slim(found) for found in listing.items}
            self._heard()
        return listing.version

    def _follow(self, version: str) -> str:
        """Watch from a version on; the version that was reached, empty where history does not go back so far."""
        for event in self._client.watch(self._resource, self._selector, version, WATCH_SECONDS):
            if event["type"] == "ERROR" or self._closed.is_set():
                return ""
            version = event["object"]["metadata"]["resourceVersion"]
            self._take(event["type"], event["object"])
        with self._changed:
            self._heard()
        return version

    def _take(self, kind: str, found: Object) -> None:
        with self._changed:
            if kind == "DELETED":
                self._objects.pop(found["metadata"]["name"], None)
            elif kind != "BOOKMARK":
                self._objects[found["metadata"]["name"]] = _slim(found)
            self._heard()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self._changed.notify_all()


HELD: Mapping[Resource, str] = {
    CONFIG_MAPS: JOB,
    JOBS: JOB,
    JOB_SETS: JOB,
    NODES: "",
    PODS: JOB,
    PYTORCH_JOBS: JOB,
    TRAIN_JOBS: JOB,
    WORKLOADS: QUEUED_JOB,
}
"""What a mirror can hold, and the label of those objects that it does."""
_Objects = list[Object]
_Question = tuple[Resource, frozenset[tuple[str, str]], str]
"""What is listed: which kind, with which labels, in which namespace."""


@dataclass(frozen=True)
class Mirror:
    """Implements `reader.Reader`: from what it holds since somebody first asked, and by asking for all else.

    One for a process, with whose end its threads end.
    """

    client: Client
    _kinds: dict[Resource, _Kind] = field(default_factory=dict, init=False, repr=False, compare=False)
    _begins: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _answers: dict[_Question, tuple[float, _Objects]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was asked for, and when."""

    def get(self, resource: Resource, name: str) -> Object | None:
        """The object of that name, None when there is none. Raises Unavailable."""
        if resource not in HELD:
            return self.client.get(resource, name)
        return self._kind(resource).objects().get(name)

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[Object]:
        """All objects with these labels. Raises Unavailable."""
        is_held = resource in HELD and HELD[resource] in ("", *labels)
        if not is_held or namespace not in ("", self.client.namespace):
            return self._asked((resource, frozenset(labels.items()), namespace))
        return [found for found in self._kind(resource).objects().values() if _matches(found, labels)]

    def _asked(self, question: _Question) -> _Objects:
        resource, labels, namespace = question
        at, found = self._answers.get(question, (float("-inf"), []))
        if time.monotonic() - at > ASKED_SECONDS:
            found = self.client.list(resource, dict(labels), namespace)
            self._answers[question] = time.monotonic(), found
        return found

    def close(self) -> None:
        """Let its threads end, as soon as they hear something."""
        for kind in self._kinds.values():
            kind.close()

    def _kind(self, resource: Resource) -> _Kind:
        with self._begins:
            if resource not in self._kinds:
                self._kinds[resource] = _Kind(self.client, resource, HELD[resource])
            return self._kinds[resource]

    def __reduce__(self) -> tuple[type["Mirror"], tuple[Client]]:
        """Another process has a mirror of its own."""
        return Mirror, (self.client,)


def _matches(found: Object, labels: Mapping[str, str]) -> bool:
    return labels.items() <= (found["metadata"].get("labels") or {}).items()


def _slim(found: Object) -> Object:
    """The object without what is long and not looked at: who manages which field, a node's images."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    status = {key: value for key, value in (found.get("status") or {}).items() if key != "images"}
    return {**found, "metadata": metadata, "status": status}

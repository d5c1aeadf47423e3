"""Lists in pages, and watches: the changes from a revision on (k8s.io/apiserver/pkg/storage/cacher)."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator

from tests.kubernetes.simulated import errors
from tests.kubernetes.simulated.kinds import Object
from tests.kubernetes.simulated.request import ApiRequest
from tests.kubernetes.simulated.selectors import Test, by_fields, by_labels
from tests.kubernetes.simulated.store import Change, Store

BOOKMARK_SECONDS = 0.5
"""Between two bookmarks of a quiet watch; about a minute in the world."""
LONGEST_SECONDS = 1800.0
"""Where a client sets no `timeoutSeconds`: the API server's --min-request-timeout."""


class Watches:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: set[asyncio.Queue[Change | None]] = set()
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        store.listeners.append(self._tell)

    def expire(self) -> None:
        """Forget all history: a watch or a page from an earlier revision gets 410."""
        self._store.compact()
        self._pages.clear()
        self.close()

    def close(self) -> None:
        """End the watches that are under way, as a stopping API server does."""
        for queue in self._queues:
            queue.put_nowait(None)

    def page(self, request: ApiRequest) -> Object:
        revision, objects = self._matching(request)
        limit = int(request.parameters.get("limit") or 0)
        page, rest = (objects[:limit], objects[limit:]) if limit else (objects, [])
        metadata: Object = {"resourceVersion": str(revision)}
        if rest:
            metadata |= {"continue": self._keep(revision, rest), "remainingItemCount": len(rest)}
        kind = f"{request.resource.kind}List"
        return {"kind": kind, "apiVersion": request.resource.api_version, "metadata": metadata, "items": page}

    async def watch(self, request: ApiRequest) -> AsyncIterator[Object]:
        """The events of a watch until its time is up. One that is too old gets an ERROR event with 410."""
        test = _test(request)
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for event in self._first(request, test):
                yield event
            seconds = float(request.parameters.get("timeoutSeconds") or LONGEST_SECONDS)
            ends = asyncio.get_running_loop().time() + seconds
            async for event in self._following(request, test, queue, ends):
                yield event
        except errors.KubernetesError as error:
            yield {"type": "ERROR", "object": errors.as_status(error)}
        finally:
            self._queues.discard(queue)

    def _first(self, request: ApiRequest, test: Test) -> list[Object]:
        """All objects, for a watch without a revision; else the changes since its revision."""
        version = request.parameters.get("resourceVersion", "")
        if version in ("", "0"):
            present = self._store.all_of(request.resource, request.namespace)
            return [{"type": "ADDED", "object": object} for object in present if test(object)]
        missed = self._store.since(int(version))
        return [event for change in missed if (event := _event(change, request, test))]

    async def _following(
        self, request: ApiRequest, test: Test, queue: "asyncio.Queue[Change | None]", ends: float
    ) -> AsyncIterator[Object]:
        sent, loop = 0, asyncio.get_running_loop()
        while (seconds_left := ends - loop.time()) > 0:
            try:
                change = await asyncio.wait_for(queue.get(), min(seconds_left, BOOKMARK_SECONDS))
            except TimeoutError:
                if request.parameters.get("allowWatchBookmarks", "").lower() == "true" and self._store.revision > sent:
                    sent = self._store.revision
                    yield _bookmark(request, sent)
                continue
            if change is None:
                return
            if event := _event(change, request, test):
                yield event

    def _matching(self, request: ApiRequest) -> tuple[int, list[Object]]:
        if token := request.parameters.get("continue"):
            if token not in self._pages:
                raise errors.expired("The provided continue parameter is too old to display a consistent list result.")
            return self._pages[token]
        test = _test(request)
        objects = [object for object in self._store.all_of(request.resource, request.namespace) if test(object)]
        return self._store.revision, objects

    def _keep(self, revision: int, rest: list[Object]) -> str:
        start = rest[0]["metadata"]["name"]
        token = base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).encode())
        self._pages[token.decode()] = (revision, rest)
        return token.decode()

    def _tell(self, change: Change) -> None:
        for queue in self._queues:
            queue.put_nowait(change)


def _test(request: ApiRequest) -> Test:
    labels = by_labels(request.parameters.get("labelSelector", ""))
    fields = by_fields(request.resource, request.parameters.get("fieldSelector", ""))
    return lambda object: labels(object) and fields(object)


def _event(change: Change, request: ApiRequest, test: Test) -> Object | None:
    """The change in a watch with a selector: an object that stops matching is deleted, a new match added."""
    if change.resource != request.resource:
        return None
    if request.namespace and change.object["metadata"].get("namespace") != request.namespace:
        return None
    matched = change.before is not None and test(change.before)
    matches = change.event != "DELETED" and test(change.object)
    if not matched and not matches:
        return None
    event = "MODIFIED" if matched and matches else "ADDED" if matches else "DELETED"
    return {"type": event, "object": change.object}


def _bookmark(request: ApiRequest, revision: int) -> Object:
    metadata = {"resourceVersion": str(revision), "creationTimestamp": None}
    object = {"kind": request.resource.kind, "apiVersion": request.resource.api_version, "metadata": metadata}
    return {"type": "BOOKMARK", "object": object}

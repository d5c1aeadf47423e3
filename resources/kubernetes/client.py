"""The API server over HTTP: plain JSON documents in and out, each call with a time-out, each error told in one way.

The official client brings what is hard (kubeconfig, tokens that change, TLS); its typed models are not used, as custom
resources have none. Every call may be repeated without harm: creating what is there is told by None.
"""

import contextlib
import json
import urllib.parse
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import kubernetes
import urllib3

from resources.kubernetes.objects import PODS, Object, Resource
from resources.launcher.protocol import Unavailable

PAGE = 500
"""Objects in one page of a list, as kubectl has it."""
RETRIES = urllib3.Retry(
    total=2,
    status_forcelist=(429, 503),
    allowed_methods=None,
    raise_on_status=False,
    redirect=False,
    retry_after_max=2,
    backoff_factor=0.1,
)
"""A server that says when it has time again is asked then, if that is within seconds; the next tick does the rest."""
INSTALLED_BY = {
    "jobset.x-k8s.io": "JobSet",
    "kubeflow.org": "the Kubeflow training operator",
    "trainer.kubeflow.org": "Kubeflow Trainer",
    "kueue.x-k8s.io": "Kueue",
    "scheduling.volcano.sh": "Volcano",
}


class Refused(ValueError):
    """The API server does not do it, and asking again would not help. Nothing was changed."""


class Conflict(Unavailable):
    """Somebody else has changed the object meanwhile."""


@dataclass(frozen=True)
class Listing:
    """Objects as they were at one version of the cluster."""

    items: list[Object]
    version: str


@dataclass(frozen=True)
class Client:
    """Reading raises Unavailable alone, whatever the reason; writing raises Unavailable or Refused."""

    kubeconfig: str = ""
    """The path of a kubeconfig; empty in a pod, which has a service account."""
    context: str = ""
    """One of the kubeconfig's contexts; empty for its current one."""
    timeout_seconds: float = 10.0
    requests: Counter[str] = field(default_factory=Counter, compare=False, repr=False)
    """How many were made, by verb and kind: `list pods`."""

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        call = _Call("get", resource, namespace, name)
        return self._document(call, self._request("GET", call))

    def list(self, resource: Resource, namespace: str = "", selector: str = "", fields: str = "") -> Listing:
        """All objects of a kind in the namespace (empty: in all), or those that the labels and fields select."""
        call = _Call("list", resource, namespace)
        query = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields}
        items: list[Object] = []
        while True:
            page = self._document(call, self._request("GET", call, query)) or {}
            items += page.get("items") or []
            metadata = page.get("metadata", {})
            query["continue"] = metadata.get("continue", "")
            if not query["continue"]:
                return Listing(items, metadata.get("resourceVersion", ""))

    def watch(
        self, resource: Resource, namespace: str, selector: str, version: str, seconds: float
    ) -> Iterator[dict[str, Any]]:
        """What happens after that version, for so many seconds: `type` and `object`. Expired versions are an event too.

        Raises Unavailable when nothing was heard for longer than that: a connection may be dead and not closed.
        """
        call = _Call("watch", resource, namespace)
        query = {"watch": "1", "allowWatchBookmarks": "true", "labelSelector": selector, "resourceVersion": version}
        query["timeoutSeconds"] = str(int(seconds))
        response = self._request("GET", call, query, stream=True, patience=seconds + self.timeout_seconds)
        with contextlib.closing(response), _reachable(call):
            if response.status != 200:
                raise _failure(call, response.status, _said(response))
            for line in response:
                if line.strip():
                    yield json.loads(line)

    def create(self, resource: Resource, document: Object) -> Object | None:
        """The object as it was created, or None where one of its name is there already."""
        metadata = document["metadata"]
        call = _Call("create", resource, metadata.get("namespace", ""), metadata["name"])
        response = self._request("POST", call, body=document)
        if response.status == 409 and _said(response).get("reason") == "AlreadyExists":
            return None
        return self._document(call, response)

    def patch(self, resource: Resource, namespace: str, name: str, change: Object) -> Object | None:
        """Merge the change into the object, and give what came of it; None where there is none.

        With a `resourceVersion` in the change, an object that is not of that version any more is a Conflict.
        """
        call = _Call("patch", resource, namespace, name)
        return self._document(call, self._request("PATCH", call, body=change))

    def delete(
        self, resource: Resource, namespace: str, name: str, uid: str = "", grace_seconds: int | None = None
    ) -> bool:
        """Delete the object, if it is the one with that uid, and in the background what it owns. False: it was gone."""
        call = _Call("delete", resource, namespace, name)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        response = self._request("DELETE", call, body=options)
        if response.status == 409:  # another object has taken the name
            return False
        return self._document(call, response) is not None

    def log(self, namespace: str, pod: str, container: str, tail_bytes: int) -> str:
        """The end of a container's output; empty where it has not started."""
        call = _Call("get", PODS, namespace, pod, "log")
        # A line has at least one byte.
        query = {"container": container, "tailLines": str(tail_bytes)}
        response = self._request("GET", call, query, stream=True)
        with contextlib.closing(response), _reachable(call):
            if response.status in (400, 404):
                return ""
            if response.status != 200:
                raise _failure(call, response.status, _said(response))
            end: deque[int] = deque(maxlen=tail_bytes)
            for chunk in response.stream():
                end.extend(chunk)
            return bytes(end).decode(errors="replace")

    def serves(self, resource: Resource) -> bool:
        """Whether the cluster has that kind in that version."""
        call = _Call("get", replace(resource, plural=""))
        response = self._request("GET", call)
        document = self._document(call, response) if response.status != 404 else None
        return resource.plural in {kind["name"] for kind in (document or {}).get("resources", [])}

    def _request(
        self,
        method: str,
        call: "_Call",
        query: dict[str, str] | None = None,
        body: Object | None = None,
        stream: bool = False,
        patience: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        self.requests[f"{call.verb} {call.resource.plural}"] += 1
        with _reachable(call):
            return self._send(method, call.path, query or {}, body, stream, patience or self.timeout_seconds)

    def _send(
        self, method: str, path: str, query: dict[str, str], body: Object | None, stream: bool, patience: float
    ) -> urllib3.BaseHTTPResponse:
        api = self._api
        headers = {**api.default_headers, "Accept": "application/json, */*"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        api.update_params_for_auth(headers, [], ["BearerToken"])
        said = urllib.parse.urlencode({name: value for name, value in query.items() if value})
        response: urllib3.BaseHTTPResponse = api.rest_client.pool_manager.request(
            method,
            f"{api.configuration.host}{path}?{said}",
            body=None if body is None else json.dumps(body),
            headers=headers,
            timeout=urllib3.Timeout(connect=self.timeout_seconds, read=patience),
            preload_content=not stream,
            retries=RETRIES,
        )
        return response

    def _document(self, call: "_Call", response: urllib3.BaseHTTPResponse) -> Object | None:
        """What the server answered; None for an object that is not there."""
        said = _said(response)
        if 200 <= response.status < 300:
            return said
        if response.status == 404 and call.name and said.get("details", {}).get("name") == call.name:
            return None
        raise _failure(call, response.status, said)

    @cached_property
    def _api(self) -> Any:
        configuration = kubernetes.client.Configuration()
        if self.kubeconfig:
            kubernetes.config.load_kube_config(
                self.kubeconfig, self.context or None, client_configuration=configuration, persist_config=False
            )
        else:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        return kubernetes.client.ApiClient(configuration)

    def __reduce__(self) -> tuple[type["Client"], tuple[str, str, float]]:
        """Connections stay where they are."""
        return Client, (self.kubeconfig, self.context, self.timeout_seconds)


@dataclass(frozen=True)
class _Call:
    """What was asked of the server."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    part: str = ""

    @property
    def path(self) -> str:
        place = ["namespaces", self.namespace] if self.namespace else []
        name = self.name if self.verb != "create" else ""
        parts = filter(None, [*place, self.resource.plural, name, self.part])
        return "/".join([_prefix(self.resource), *map(urllib.parse.quote, parts)])

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"cannot {self.verb} {' '.join(filter(None, [self.resource.kind, self.name, self.part]))}{where}"


def _prefix(resource: Resource) -> str:
    return f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"


def _said(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    """The document of a response; what is no document is its message."""
    try:
        document = json.loads(response.data)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {"message": response.data[:500].decode(errors="replace").strip()}


def _failure(call: _Call, status: int, said: dict[str, Any]) -> Exception:
    """The exception for an answer that is none: of a kind that is for the user to mend, or for time."""
    message = f"{call}: {said.get('message') or f'HTTP status {status}'}{_unnamed_fields(said)}"
    if status == 404 and "kind" not in said:
        message = f"{call}: {_missing(call.resource)}"
    if status == 403 and " cannot " in message.partition(": ")[2]:
        api_group = call.resource.group or '""'
        rule = f"apiGroups [{api_group}], resources [{_grantable(call)}], verbs [{call.verb}]"
        message += f"; a Role with {rule}, bound to that user, grants it"
    if status == 409:
        return Conflict(message)
    for_the_user = status in (400, 403, 404, 405, 413, 422) and "exceeded quota" not in message
    if for_the_user and call.verb in ("create", "patch", "delete"):
        return Refused(message)
    return Unavailable(message)


def _grantable(call: _Call) -> str:
    return "/".join(filter(None, [call.resource.plural, call.part]))


def _missing(resource: Resource) -> str:
    who = INSTALLED_BY.get(resource.group, "its operator")
    return (
        f"the cluster has no {resource.plural}.{resource.group} of version {resource.version}: "
        f"install {who}, or choose a launcher that does without it"
    )


def _unnamed_fields(said: dict[str, Any]) -> str:
    """The fields that are wrong, as far as the message does not name them."""
    causes = said.get("details", {}).get("causes", []) if isinstance(said.get("details"), dict) else []
    unnamed = [cause for cause in causes if cause.get("field", "") not in said.get("message", "")]
    return "".join(f"; {cause['field']}: {cause.get('message', '')}" for cause in unnamed)


@contextlib.contextmanager
def _reachable(call: _Call) -> Iterator[None]:
    try:
        yield
    except (OSError, urllib3.exceptions.HTTPError, kubernetes.config.ConfigException, ValueError) as error:
        raise Unavailable(f"{call}: {error}") from error

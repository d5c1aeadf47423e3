"""The API server over HTTP: plain JSON documents in and out, each call with a time-out, each error told in one way.

The official client brings what is hard (kubeconfig, tokens that change, TLS); its typed models are not used, as custom
resources have none. Every call may be repeated without harm: creating what is there is told by None.
"""

import contextlib
import json
import urllib.parse
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import urllib3

from resources.kubernetes import answers
from resources.kubernetes.answers import Call
from resources.kubernetes.objects import PODS, Object, Resource
from resources.launcher.protocol import Unavailable

PAGE = 500
"""Objects in one page of a list, as kubectl has it."""
RETRIES = urllib3.Retry(
    total=2,
    connect=0,
    status_forcelist=(429, 503),
    allowed_methods=None,
    raise_on_status=False,
    redirect=False,
    retry_after_max=2,
    backoff_factor=0.1,
)
"""A server that says when it has time again is asked then, if that is within seconds; the next tick does the rest."""


@dataclass(frozen=True)
class Listing:
    """Objects as they were at one version of the cluster."""

    items: list[Object]
    version: str


@dataclass(frozen=True)
class Client:
    """Implements `reader.Writer`. Reading raises Unavailable alone; writing raises that or `answers.Refused`."""

    kubeconfig: str = ""
    """The path of a kubeconfig; empty in a pod, which has a service account."""
    context: str = ""
    """One of the kubeconfig's contexts; empty for its current one."""
    namespace: str = "slipway"
    """Where namespaced objects are, unless another is said."""
    timeout_seconds: float = 10.0
    requests: Counter[str] = field(default_factory=Counter, compare=False, repr=False)
    """How many were made, by verb and kind: `list pods`."""

    def get(self, resource: Resource, name: str) -> Object | None:
        """The object, or None where there is none."""
        call = Call("get", resource, self.namespace, name)
        return self._document(call, self._request("GET", call))

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[Object]:
        """All objects with these labels."""
        selector = ",".join(f"{label}={value}" for label, value in labels.items())
        return self.listing(resource, selector, namespace=namespace).items

    def listing(self, resource: Resource, selector: str = "", fields: str = "", namespace: str = "") -> Listing:
        """All objects that the selectors of labels and fields select, whatever their number."""
        call = Call("list", resource, namespace or self.namespace)
        query = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields}
        items: list[Object] = []
        while True:
            page = self._document(call, self._request("GET", call, query)) or {}
            items += page.get("items") or []
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return Listing(items, page["metadata"].get("resourceVersion", ""))

    def watch(self, resource: Resource, selector: str, version: str, seconds: int) -> Iterator[dict[str, Any]]:
        """What happens after that version, for so many seconds: `type` and `object`.

        Raises Unavailable when nothing was heard for longer than that: a connection may be dead and not closed.
        """
        call = Call("watch", resource, self.namespace)
        query = {"watch": "1", "allowWatchBookmarks": "true", "labelSelector": selector, "resourceVersion": version}
        query["timeoutSeconds"] = str(seconds)
        response = self._request("GET", call, query, patience=seconds + self.timeout_seconds)
        with contextlib.closing(response), _reachable(call):
            self._must_be_well(call, response)
            for line in response:
                if line.strip():
                    yield json.loads(line)

    def create(self, resource: Resource, document: Object) -> Object | None:
        """The object as it was created, or None where one of its name is there already."""
        call = Call("create", resource, self.namespace, document["metadata"]["name"])
        # An unknown field, in a recipe's patch perhaps, is an error and not dropped.
        response = self._request("POST", call, {"fieldValidation": "Strict"}, body=document)
        if response.status == 409 and answers.said(response.data).get("reason") == "AlreadyExists":
            return None
        self._must_be_well(call, response)
        return answers.said(response.data)

    def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> Object:
        """Merge the change (RFC 7386) into the object, and give what came of it.

        With a `resourceVersion` in the change, an object that is not of that version any more is a Conflict.
        """
        call = Call("patch", resource, self.namespace, name)
        response = self._request("PATCH", call, body=change)
        self._must_be_well(call, response)
        return answers.said(response.data)

    def delete(self, resource: Resource, name: str, uid: str = "", grace_seconds: int | None = None) -> bool:
        """Delete the object, if it is the one with that uid, and in the background what it owns. False: it was gone."""
        call = Call("delete", resource, self.namespace, name)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        response = self._request("DELETE", call, body=options)
        if response.status == 409:  # another object has taken the name
            return False
        return self._document(call, response) is not None

    def log(self, pod: str, container: str, tail_bytes: int) -> str | None:
        """The end of a container's output; None where it has not started, or is gone."""
        call = Call("get", PODS, self.namespace, pod, "log")
        # A line has one byte at least, so that these are enough.
        response = self._request("GET", call, {"container": container, "tailLines": str(tail_bytes)}, stream=True)
        with contextlib.closing(response), _reachable(call):
            if response.status in (400, 404):
                return None
            self._must_be_well(call, response)
            end: deque[int] = deque(maxlen=tail_bytes)
            for chunk in response.stream():
                end.extend(chunk)
            return bytes(end).decode(errors="replace")

    def serves(self, resource: Resource) -> bool:
        """Whether the cluster has that kind in that version."""
        call = Call("discover", replace(resource, plural=""))
        response = self._request("GET", call)
        if response.status == 404:
            return False
        self._must_be_well(call, response)
        return resource.plural in {kind["name"] for kind in answers.said(response.data)["resources"]}

    def _request(
        self,
        method: str,
        call: Call,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        stream: bool = False,
        patience: float = 0,
    ) -> urllib3.BaseHTTPResponse:
        """The answer, of whatever status; one that is read while it comes in, if it is to be so or may take long."""
        self.requests[f"{call.verb} {call.resource.plural}".strip()] += 1
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        said = urllib.parse.urlencode({name: value for name, value in (query or {}).items() if value})
        with _reachable(call):
            api = self._api
            api.update_params_for_auth(headers, [], ["BearerToken"])
            response: urllib3.BaseHTTPResponse = api.rest_client.pool_manager.request(
                method,
                f"{api.configuration.host}{call.path}?{said}",
                body=None if body is None else json.dumps(body),
                headers=headers | {"Accept": "application/json, */*"},
                timeout=urllib3.Timeout(connect=self.timeout_seconds, read=patience or self.timeout_seconds),
                preload_content=not (stream or patience),
                retries=RETRIES,
            )
            return response

    def _document(self, call: Call, response: urllib3.BaseHTTPResponse) -> Object | None:
        """What the server answered; None for an object that is not there."""
        if answers.is_of_a_missing_object(call, response.status, answers.said(response.data)):
            return None
        self._must_be_well(call, response)
        return answers.said(response.data)

    def _must_be_well(self, call: Call, response: urllib3.BaseHTTPResponse) -> None:
        if not 200 <= response.status < 300:
            raise answers.failure(call, response.status, answers.said(response.data))

    @cached_property
    def _api(self) -> Any:
        import kubernetes  # its models take a second to load

        configuration = kubernetes.client.Configuration()
        try:
            if self.kubeconfig:
                kubernetes.config.load_kube_config(
                    self.kubeconfig, self.context or None, client_configuration=configuration, persist_config=False
                )
            else:
                kubernetes.config.load_incluster_config(client_configuration=configuration)
        except kubernetes.config.ConfigException as error:
            where = f"kubeconfig {self.kubeconfig}" if self.kubeconfig else "the service account of this pod"
            raise Unavailable(f"{where}: {error}") from error
        return kubernetes.client.ApiClient(configuration)

    def __reduce__(self) -> tuple[type["Client"], tuple[str, str, str, float]]:
        """Connections stay where they are."""
        return Client, (self.kubeconfig, self.context, self.namespace, self.timeout_seconds)


@contextlib.contextmanager
def _reachable(call: Call) -> Iterator[None]:
    try:
        yield
    except (OSError, urllib3.exceptions.HTTPError, json.JSONDecodeError) as error:
        raise Unavailable(f"{call}: {error}") from error

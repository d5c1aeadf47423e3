"""The API client: plain JSON documents over HTTP, with a time-out for each call and one exception for each error.

The official client handles kubeconfig, changing tokens and TLS; its typed models are not used, since custom resources
have none. Every call may be repeated without harm: `create` returns None if the object exists.
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

from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes import answers
from slipway.resources.kubernetes.answers import Call
from slipway.resources.kubernetes.objects import PODS, KubernetesObject, Resource
from slipway.trainer.base import parsing, proxy_bypass

PAGE = 500
"""The number of objects in one page of a list; the same as kubectl's."""
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
"""A busy server says when to repeat a call. The client waits at most two seconds; later retries are the next tick's."""


@dataclass(frozen=True)
class ObjectListing:
    """The objects of a list, all at the same resource version."""

    items: list[KubernetesObject]
    version: str


@dataclass(frozen=True)
class Client:
    """Implements `objects.ClusterWriter`. Reads raise Unavailable, writes also `answers.RefusedRequest`."""

    kubeconfig: str = ""
    """The path of a kubeconfig; empty in a pod with a service account."""
    context: str = ""
    """The context of the kubeconfig; empty for its current context."""
    namespace: str = "slipway"
    """The default namespace of calls."""
    timeout_seconds: float = 10.0
    requests: Counter[str] = field(default_factory=Counter, compare=False, repr=False)
    """The number of requests so far, by verb and kind: `list pods`."""

    def get(self, resource: Resource, name: str) -> KubernetesObject | None:
        """The object, or None."""
        call = Call("get", resource, self.namespace, name)
        return self._document(call, self._request("GET", call))

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[KubernetesObject]:
        """All objects with these labels."""
        selector = ",".join(f"{label}={value}" for label, value in labels.items())
        return self.listing(resource, selector, namespace=namespace).items

    def listing(self, resource: Resource, selector: str = "", fields: str = "", namespace: str = "") -> ObjectListing:
        """All pages of the objects that the label and field selectors select."""
        call = Call("list", resource, namespace or self.namespace)
        query = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields}
        items: list[KubernetesObject] = []
        while True:
            page = self._document(call, self._request("GET", call, query)) or {}
            items += page.get("items") or []
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return ObjectListing(items, page["metadata"].get("resourceVersion", ""))

    def watch(self, resource: Resource, selector: str, version: str, seconds: int) -> Iterator[dict[str, Any]]:
        """The events after `version`, for `seconds` seconds, as mappings with `type` and `object`.

        Raises Unavailable if nothing arrives for longer, since a dead connection may never be closed.
        """
        call = Call("watch", resource, self.namespace)
        query = {"watch": "1", "allowWatchBookmarks": "true", "labelSelector": selector, "resourceVersion": version}
        query["timeoutSeconds"] = str(seconds)
        response = self._request("GET", call, query, patience=seconds + self.timeout_seconds)
        with contextlib.closing(response), _reachable(call):
            self._raise_for_error(call, response)
            for line in response:
                if line.strip():
                    yield parsing.value(line)

    def create(self, resource: Resource, document: KubernetesObject) -> KubernetesObject | None:
        """Create an object and return it; None if an object with that name exists."""
        call = Call("create", resource, self.namespace, document["metadata"]["name"])
        # With Strict, an unknown field, perhaps from a recipe's patch, is an error; otherwise the server would drop it.
        response = self._request("POST", call, {"fieldValidation": "Strict"}, body=document)
        if response.status == 409 and answers.parsed(response.data).get("reason") == "AlreadyExists":
            return None
        self._raise_for_error(call, response)
        return answers.parsed(response.data)

    def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> KubernetesObject:
        """Merge the change (RFC 7386) into the object, and return the result.

        If the change has a `resourceVersion`, raises ObjectConflict if the object has another version now.
        """
        call = Call("patch", resource, self.namespace, name)
        response = self._request("PATCH", call, body=change)
        self._raise_for_error(call, response)
        return answers.parsed(response.data)

    def delete(self, resource: Resource, name: str, uid: str = "", grace_seconds: int | None = None) -> bool:
        """Delete the object (if it has this uid), and in the background what it owns. Returns False if it was gone."""
        call = Call("delete", resource, self.namespace, name)
        options: KubernetesObject = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        response = self._request("DELETE", call, body=options)
        if response.status == 409:  # the object has another uid
            return False
        return self._document(call, response) is not None

    def log(self, pod: str, container: str, tail_bytes: int) -> str | None:
        """The end of a container's output; None if the container has not started or is gone."""
        call = Call("get", PODS, self.namespace, pod, "log")
        # Every line has at least one byte, so this many lines are enough.
        response = self._request("GET", call, {"container": container, "tailLines": str(tail_bytes)}, stream=True)
        with contextlib.closing(response), _reachable(call):
            if response.status in (400, 404):
                return None
            self._raise_for_error(call, response)
            end: deque[int] = deque(maxlen=tail_bytes)
            for chunk in response.stream():
                end.extend(chunk)
            return bytes(end).decode(errors="replace")

    def serves(self, resource: Resource) -> bool:
        """Whether the cluster has this kind of object in this version."""
        call = Call("discover", replace(resource, plural=""))
        response = self._request("GET", call)
        if response.status == 404:
            return False
        self._raise_for_error(call, response)
        return resource.plural in {kind["name"] for kind in answers.parsed(response.data)["resources"]}

    def _request(
        self,
        method: str,
        call: Call,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        stream: bool = False,
        patience: float = 0,
    ) -> urllib3.BaseHTTPResponse:
        """The response, whatever its status. With `stream` or `patience` (seconds), the caller reads its body."""
        self.requests[f"{call.verb} {call.resource.plural}".strip()] += 1
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        query_string = urllib.parse.urlencode({name: value for name, value in (query or {}).items() if value})
        with _reachable(call):
            api = self._api
            api.update_params_for_auth(headers, [], ["BearerToken"])
            response: urllib3.BaseHTTPResponse = api.rest_client.pool_manager.request(
                method,
                f"{api.configuration.host}{call.path}?{query_string}",
                body=None if body is None else json.dumps(body),
                headers=headers | {"Accept": "application/json, */*"},
                timeout=urllib3.Timeout(connect=self.timeout_seconds, read=patience or self.timeout_seconds),
                preload_content=not (stream or patience),
                retries=RETRIES,
            )
            return response

    def _document(self, call: Call, response: urllib3.BaseHTTPResponse) -> KubernetesObject | None:
        """The document in a response; None if the object does not exist."""
        if answers.is_of_a_missing_object(call, response.status, answers.parsed(response.data)):
            return None
        self._raise_for_error(call, response)
        return answers.parsed(response.data)

    def _raise_for_error(self, call: Call, response: urllib3.BaseHTTPResponse) -> None:
        if not 200 <= response.status < 300:
            raise answers.failure(call, response.status, answers.parsed(response.data))

    @cached_property
    def _api(self) -> Any:
        import kubernetes  # its models take a second to load

        proxy_bypass.bypass()
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
        """Pickle the settings only, since another process opens its own connections."""
        return Client, (self.kubeconfig, self.context, self.namespace, self.timeout_seconds)


@contextlib.contextmanager
def _reachable(call: Call) -> Iterator[None]:
    try:
        yield
    except (OSError, urllib3.exceptions.HTTPError, json.JSONDecodeError) as error:
        raise Unavailable(f"{call}: {error}") from error

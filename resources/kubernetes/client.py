"""The API server over HTTP: plain JSON documents in and out, each call with a time-out, each error as one exception.

The official client does the hard part (kubeconfig, tokens that change, TLS); its typed models are not used, as custom
resources have none. Every call may be repeated without harm: `create` returns None for an object that is there.
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
"""Objects in one page of a list: kubectl's number."""
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
"""A busy server says when to repeat a call: within two seconds that happens here, later in the next tick."""


@dataclass(frozen=True)
class ObjectListing:
    """The objects of a list, all at one version of the cluster."""

    items: list[KubernetesObject]
    version: str


@dataclass(frozen=True)
class Client:
    """Implements `reader.ClusterWriter`. Reads raise Unavailable, writes also `answers.RefusedRequest`: see there."""

    kubeconfig: str = ""
    """The path of a kubeconfig; empty in a pod, which has a service account."""
    context: str = ""
    """One of the kubeconfig's contexts; empty for its current one."""
    namespace: str = "slipway"
    """The namespace of calls that name none."""
    timeout_seconds: float = 10.0
    requests: Counter[str] = field(default_factory=Counter, compare=False, repr=False)
    """The number of requests so far, by verb and kind: `list pods`."""

    def get(self, resource: Resource, name: str) -> KubernetesObject | None:
        """The object, or None where there is none."""
        call = Call("get", resource, self.namespace, name)
        return self._document(call, self._request("GET", call))

    def list(self, resource: Resource, labels: Mapping[str, str], namespace: str = "") -> list[KubernetesObject]:
        """All objects with these labels."""
        selector = ",".join(f"{label}={value}" for label, value in labels.items())
        return self.listing(resource, selector, namespace=namespace).items

    def listing(self, resource: Resource, selector: str = "", fields: str = "", namespace: str = "") -> ObjectListing:
        """All objects that the selectors of labels and fields select: every page of them."""
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
        """The events after that version, for so many seconds: mappings of `type` and `object`.

        Raises Unavailable when nothing arrives for longer than that: a connection may be dead without being closed.
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
        """The object as it was created; None where an object of that name is there already."""
        call = Call("create", resource, self.namespace, document["metadata"]["name"])
        # Strict: an unknown field, perhaps of a recipe's patch, is an error; the server would drop it otherwise.
        response = self._request("POST", call, {"fieldValidation": "Strict"}, body=document)
        if response.status == 409 and answers.parsed(response.data).get("reason") == "AlreadyExists":
            return None
        self._raise_for_error(call, response)
        return answers.parsed(response.data)

    def patch(self, resource: Resource, name: str, change: Mapping[str, Any]) -> KubernetesObject:
        """Merge the change (RFC 7386) into the object; returns the object after that.

        With a `resourceVersion` in the change, raises ObjectConflict for an object that has another version now.
        """
        call = Call("patch", resource, self.namespace, name)
        response = self._request("PATCH", call, body=change)
        self._raise_for_error(call, response)
        return answers.parsed(response.data)

    def delete(self, resource: Resource, name: str, uid: str = "", grace_seconds: int | None = None) -> bool:
        """Delete the object, if it has that uid, and what it owns in the background; False when it was gone."""
        call = Call("delete", resource, self.namespace, name)
        options: KubernetesObject = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        response = self._request("DELETE", call, body=options)
        if response.status == 409:  # an object with another uid has taken the name
            return False
        return self._document(call, response) is not None

    def log(self, pod: str, container: str, tail_bytes: int) -> str | None:
        """The end of a container's output; None where the container has not started, or is gone."""
        call = Call("get", PODS, self.namespace, pod, "log")
        # A line has at least one byte: this many lines are enough.
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
        """Whether the cluster has that kind in that version."""
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
        """The answer, whatever its status. With `stream` or `patience` (seconds), it is read while it arrives."""
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
        """The document that the server answered with; None for an object that is not there."""
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
        """Another process opens connections of its own."""
        return Client, (self.kubeconfig, self.context, self.namespace, self.timeout_seconds)


@contextlib.contextmanager
def _reachable(call: Call) -> Iterator[None]:
    try:
        yield
    except (OSError, urllib3.exceptions.HTTPError, json.JSONDecodeError) as error:
        raise Unavailable(f"{call}: {error}") from error

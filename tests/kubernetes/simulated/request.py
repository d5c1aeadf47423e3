"""The meaning of a request: verb, kind and object, from its method and path by the API server's rules."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp.web

from tests.kubernetes.simulated import errors
from tests.kubernetes.simulated.kinds import Resource

VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class ApiRequest:
    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    parameters: Mapping[str, str]
    body: Any
    content_type: str


def read(request: aiohttp.web.BaseRequest, body: bytes, served: Sequence[Resource]) -> ApiRequest:
    """Raises 404 for a kind that is not served, 405 for an unknown method."""
    parts = request.path.strip("/").split("/")
    group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    version, *rest = rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        _, namespace, *rest = rest
    plural, name, subresource = (*rest, "", "")[0], (*rest, "", "")[1], "/".join(rest[2:])
    resource = _served(served, group, version, plural)
    verb = _verb(request.method, name, request.query)
    return ApiRequest(
        verb,
        resource,
        namespace,
        name,
        subresource,
        dict(request.query),
        json.loads(body) if body else None,
        request.headers.get("Content-Type", "").split(";")[0],
    )


def _served(served: Sequence[Resource], group: str, version: str, plural: str) -> Resource:
    for resource in served:
        if (resource.group, resource.version, resource.plural) == (group, version, plural):
            return resource
    raise errors.no_such_resource()


def _verb(method: str, name: str, parameters: Mapping[str, str]) -> str:
    if method not in VERBS:
        raise errors.method_not_allowed()
    if method == "GET" and parameters.get("watch", "").lower() in ("true", "1"):
        return "watch"
    if method == "GET" and not name:
        return "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return VERBS[method]

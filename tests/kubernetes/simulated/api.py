"""The API server over HTTP. Discovery and errors are kmock's; state and rules are ours.

kmock 0.8 has a stateful emulator too, but no resource versions, selectors, pages, grace, finalizers or sub-resources.
"""

import collections
import json
from collections.abc import Callable

import aiohttp.web
import kmock
from kmock import KubernetesScaffold, Request, ResourceInfo

from tests.kubernetes.simulated import errors, request, subresources
from tests.kubernetes.simulated.kinds import BUILT_IN, Object, Resource
from tests.kubernetes.simulated.registry import Registry
from tests.kubernetes.simulated.request import ApiRequest
from tests.kubernetes.simulated.watches import Watches

USER = "system:serviceaccount:slipway:slipway"
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2"}
VERSION |= dict.fromkeys(("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"), "")
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
Logs = Callable[[Object, str], bytes]


class Api(KubernetesScaffold):
    """The handler of requests. `requests_by` counts them by verb and plural name."""

    def __init__(self, registry: Registry, watches: Watches, logs: Logs) -> None:
        super().__init__()
        self.registry, self.watches, self.logs = registry, watches, logs
        self.requests_by: collections.Counter[tuple[str, str]] = collections.Counter()
        self.forbidden: set[tuple[str, str]] = set()
        """Verb and plural name, with ``/subresource`` where it is one."""
        self.served: list[Resource] = []
        self.serve(*BUILT_IN)

    def serve(self, *resources: Resource) -> None:
        for resource in resources:
            self.served.append(resource)
            info = ResourceInfo(namespaced=resource.namespaced, kind=resource.kind, singular=resource.kind.lower())
            info.verbs, info.subresources = set(VERBS), {"status"}
            self.resources[_path(resource)] = info

    def drop(self, *resources: Resource) -> None:
        """Stop serving the kinds, as if their CustomResourceDefinitions were deleted."""
        for resource in resources:
            self.served.remove(resource)
            del self.resources[_path(resource)]

    async def __call__(self, raw: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        """Answer one request. kmock's own parser of requests does not know the path of all namespaces."""
        body = await raw.read()
        parts = raw.path.strip("/").split("/")
        if len(parts) < {"api": 3, "apis": 4}.get(parts[0], 2):
            return await self._discover(parts)
        if parts[0] not in ("api", "apis") or not self._knows(parts[0], parts[1]):
            return aiohttp.web.Response(text="404 page not found\n", status=404)
        try:
            return await self._answer(request.read(raw, body, self.served), raw)
        except errors.KubernetesError as error:
            return aiohttp.web.json_response(errors.as_status(error), status=error.status)

    async def _discover(self, parts: list[str]) -> aiohttp.web.StreamResponse:
        """Discovery of the kinds; kmock has the answers."""
        found: object
        match parts:
            case ["version"]:
                found = VERSION
            case ["api"]:
                found = await self._serve_api(Request())
            case ["apis"]:
                found = await self._serve_apis(Request())
            case ["apis", group] if self._knows("apis", group):
                found = await self._serve_group(Request(resource=kmock.resource(group=group)))
            case ["api", version]:
                found = await self._serve_version(Request(resource=kmock.resource(group="", version=version)))
            case ["apis", group, version] if self._knows("apis", group):
                found = await self._serve_version(Request(resource=kmock.resource(group=group, version=version)))
            case _:
                return aiohttp.web.Response(text="404 page not found\n", status=404)
        return aiohttp.web.json_response(found)

    def _knows(self, root: str, group: str) -> bool:
        return root == "api" or group in {resource.group for resource in self.served}

    async def _answer(self, wanted: ApiRequest, raw: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        what = f"{wanted.resource.plural}/{wanted.subresource}".rstrip("/")
        self.requests_by[wanted.verb, what] += 1
        if (wanted.verb, what) in self.forbidden:
            place = (wanted.namespace, wanted.name, wanted.subresource)
            raise errors.forbidden(wanted.resource, wanted.verb, USER, *place)
        if wanted.verb == "watch":
            return await self._stream(wanted, raw)
        if wanted.subresource == "log":
            found = subresources.log(self.registry, wanted, self.logs)
            return aiohttp.web.Response(body=found, content_type="text/plain")
        status = 201 if wanted.verb == "create" else 200
        return aiohttp.web.json_response(self._object(wanted), status=status)

    def _object(self, wanted: ApiRequest) -> Object:
        registry, place = self.registry, (wanted.resource, wanted.namespace, wanted.name)
        if wanted.subresource == "eviction":
            return subresources.evict(registry, wanted)
        match wanted.verb:
            case "list":
                return self.watches.page(wanted)
            case "get":
                return registry.get(*place)
            case "create":
                return registry.create(wanted.resource, wanted.namespace, wanted.body)
            case "update":
                return registry.update(*place, wanted.body, wanted.subresource)
            case "patch":
                return registry.patch(*place, wanted.content_type, wanted.body, wanted.subresource)
            case "delete":
                return self._deleted(wanted)
        return self._all_deleted(wanted)

    def _deleted(self, wanted: ApiRequest) -> Object:
        options = {**_options(wanted), **(wanted.body or {})}
        gone = self.registry.delete(wanted.resource, wanted.namespace, wanted.name, options)
        metadata = gone["metadata"]
        if self.registry.store.get(wanted.resource, wanted.namespace, wanted.name):
            return gone
        details = {"name": metadata["name"], "kind": wanted.resource.plural, "uid": metadata["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return gone if wanted.resource.plural == "pods" else status

    def _all_deleted(self, wanted: ApiRequest) -> Object:
        listed = self.watches.page(wanted)
        for object in listed["items"]:
            options = {**_options(wanted), **(wanted.body or {})}
            self.registry.delete(
                wanted.resource, object["metadata"].get("namespace", ""), object["metadata"]["name"], options
            )
        return listed

    async def _stream(self, wanted: ApiRequest, raw: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(raw)
        async for event in self.watches.watch(wanted):
            await response.write(json.dumps(event).encode() + b"\n")
        await response.write_eof()
        return response


def _options(wanted: ApiRequest) -> Object:
    """DeleteOptions may also be parameters; those in the body win."""
    options: Object = {}
    if "gracePeriodSeconds" in wanted.parameters:
        options["gracePeriodSeconds"] = int(wanted.parameters["gracePeriodSeconds"])
    if "propagationPolicy" in wanted.parameters:
        options["propagationPolicy"] = wanted.parameters["propagationPolicy"]
    return options


def _path(resource: Resource) -> str:
    """A kind under kmock's name."""
    return f"{resource.group}/{resource.version}/{resource.plural}".lstrip("/")

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
        answer: object
        match parts:
            case ["version"]:
                answer = VERSION
            case ["api"]:
                answer = await self._serve_api(Request())
            case ["apis"]:
                answer = await self._serve_apis(Request())
            case ["apis", group] if self._knows("apis", group):
                answer = await self._serve_group(Request(resource=kmock.resource(group=group)))
            case ["api", version]:
                answer = await self._serve_version(Request(resource=kmock.resource(group="", version=version)))
            case ["apis", group, version] if self._knows("apis", group):
                answer = await self._serve_version(Request(resource=kmock.resource(group=group, version=version)))
            case _:
                return aiohttp.web.Response(text="404 page not found\n", status=404)
        return aiohttp.web.json_response(answer)

    def _knows(self, root: str, group: str) -> bool:
        return root == "api" or group in {resource.group for resource in self.served}

    async def _answer(self, api_request: ApiRequest, raw: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        what = f"{api_request.resource.plural}/{api_request.subresource}".rstrip("/")
        self.requests_by[api_request.verb, what] += 1
        if (api_request.verb, what) in self.forbidden:
            target = (api_request.namespace, api_request.name, api_request.subresource)
            raise errors.forbidden(api_request.resource, api_request.verb, USER, *target)
        if api_request.verb == "watch":
            return await self._stream(api_request, raw)
        if api_request.subresource == "log":
            log_bytes = subresources.log(self.registry, api_request, self.logs)
            return aiohttp.web.Response(body=log_bytes, content_type="text/plain")
        status = 201 if api_request.verb == "create" else 200
        return aiohttp.web.json_response(self._object(api_request), status=status)

    def _object(self, api_request: ApiRequest) -> Object:
        registry, target = self.registry, (api_request.resource, api_request.namespace, api_request.name)
        if api_request.subresource == "eviction":
            return subresources.evict(registry, api_request)
        match api_request.verb:
            case "list":
                return self.watches.page(api_request)
            case "get":
                return registry.get(*target)
            case "create":
                return registry.create(api_request.resource, api_request.namespace, api_request.body)
            case "update":
                return registry.update(*target, api_request.body, api_request.subresource)
            case "patch":
                return registry.patch(*target, api_request.content_type, api_request.body, api_request.subresource)
            case "delete":
                return self._deleted(api_request)
        return self._all_deleted(api_request)

    def _deleted(self, api_request: ApiRequest) -> Object:
        options = {**_options(api_request), **(api_request.body or {})}
        gone = self.registry.delete(api_request.resource, api_request.namespace, api_request.name, options)
        metadata = gone["metadata"]
        if self.registry.store.get(api_request.resource, api_request.namespace, api_request.name):
            return gone
        details = {"name": metadata["name"], "kind": api_request.resource.plural, "uid": metadata["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return gone if api_request.resource.plural == "pods" else status

    def _all_deleted(self, api_request: ApiRequest) -> Object:
        listed = self.watches.page(api_request)
        for object in listed["items"]:
            options = {**_options(api_request), **(api_request.body or {})}
            self.registry.delete(
                api_request.resource, object["metadata"].get("namespace", ""), object["metadata"]["name"], options
            )
        return listed

    async def _stream(self, api_request: ApiRequest, raw: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(raw)
        async for event in self.watches.watch(api_request):
            await response.write(json.dumps(event).encode() + b"\n")
        await response.write_eof()
        return response


def _options(api_request: ApiRequest) -> Object:
    """DeleteOptions may also be parameters; those in the body win."""
    options: Object = {}
    if "gracePeriodSeconds" in api_request.parameters:
        options["gracePeriodSeconds"] = int(api_request.parameters["gracePeriodSeconds"])
    if "propagationPolicy" in api_request.parameters:
        options["propagationPolicy"] = api_request.parameters["propagationPolicy"]
    return options


def _path(resource: Resource) -> str:
    """A kind under kmock's name."""
    return f"{resource.group}/{resource.version}/{resource.plural}".lstrip("/")

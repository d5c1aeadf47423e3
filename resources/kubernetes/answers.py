"""Calls to the API server, and the meaning of its errors. Pure."""

import urllib.parse
from dataclasses import dataclass
from typing import Any

from slipway.resources.errors import PlatformFault, Unavailable
from slipway.resources.kubernetes.objects import Resource
from slipway.trainer.base import parsing

WRITES = ("create", "patch", "delete")
OF_THE_OBJECT = (400, 413, 422)
"""Status codes for an invalid object, which will be rejected until somebody changes it."""
OF_THE_PLATFORM = (403, 404, 405)
"""Status codes of a cluster that may be changing: RBAC, an operator or a namespace is being rolled out."""
DENIAL = "denied the request"
"""The text in the answer of an admission webhook that rejects an object, with any status code. The policy of the
webhook may change, so the object itself may be valid."""


class RefusedRequest(ValueError):
    """The API server rejects the content of an object, and would reject a repeated call too. Nothing was changed."""


class ObjectConflict(Unavailable):
    """Another process has changed the object meanwhile."""


@dataclass(frozen=True)
class Call:
    """One call to the server."""

    verb: str
    resource: Resource
    namespace: str = ""
    """Empty for all namespaces."""
    name: str = ""
    part: str = ""
    """A sub-resource, such as `log`."""

    @property
    def path(self) -> str:
        resource = self.resource
        prefix = ["namespaces", self.namespace] if self.namespace and resource.namespaced else []
        name = self.name if self.verb != "create" else ""
        parts = filter(None, [*prefix, resource.plural, name, self.part])
        return "/".join([f"/{'apis' if resource.group else 'api'}/{resource.api_version}", *map(_quoted, parts)])

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace and self.resource.namespaced else ""
        return f"cannot {self.verb} {' '.join(filter(None, [self.resource.kind, self.name, self.part]))}{where}"


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON document of an answer; any other body becomes its message."""
    try:
        document = parsing.value(body)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {"message": body[:500].decode(errors="replace").strip()}


def is_of_a_missing_object(call: Call, status: int, answer: dict[str, Any]) -> bool:
    """Whether only the object is missing, and not its kind or its namespace."""
    return status == 404 and bool(call.name) and _details(answer).get("name") == call.name


def failure(call: Call, status: int, answer: dict[str, Any]) -> Exception:
    """The exception for an error: RefusedRequest if a written object is wrong, PlatformFault if the cluster rejects it
    in its present state, else Unavailable."""
    message = f"{call}: {_message(answer) or f'HTTP status {status}'}{_unnamed_fields(answer)}"
    if status == 404 and answer.get("kind") != "Status":
        message = f"{call}: {missing(call.resource)}"
    if status == 403 and " cannot " in _message(answer):
        message += f"; {_granting(call)}"
    if status == 409:
        return ObjectConflict(message)
    if call.verb not in WRITES or "exceeded quota" in message:  # a quota may be free again later
        return Unavailable(message)
    if is_of_a_missing_object(call, status, answer):
        return RefusedRequest(message)
    if status in OF_THE_PLATFORM or DENIAL in message:
        return PlatformFault(message)
    return RefusedRequest(message) if status in OF_THE_OBJECT else Unavailable(message)


def missing(resource: Resource) -> str:
    """The message for a kind of object that the cluster does not have."""
    return (
        f"the cluster has no {resource.plural}.{resource.group} of version {resource.version}: "
        f"install {resource.operator or 'its operator'}, or choose a launcher that does not need it"
    )


def _granting(call: Call) -> str:
    kind = "Role" if call.resource.namespaced else "ClusterRole"
    what = "/".join(filter(None, [call.resource.plural, call.part]))
    rule = f'apiGroups ["{call.resource.group}"], resources ["{what}"], verbs ["{call.verb}"]'
    return f"a {kind} with the rule {rule}, bound to that user, would grant it"


def _unnamed_fields(answer: dict[str, Any]) -> str:
    """The wrong fields that the message does not name."""
    causes = _details(answer).get("causes")
    if not isinstance(causes, list):
        return ""
    named = [cause for cause in causes if isinstance(cause, dict) and cause.get("field")]
    unnamed = [cause for cause in named if str(cause["field"]) not in _message(answer)]
    return "".join(f"; {cause['field']}: {cause.get('message', '')}" for cause in unnamed)


def _message(answer: dict[str, Any]) -> str:
    """The message of an answer. A proxy in between may send anything."""
    return str(answer.get("message") or "")


def _details(answer: dict[str, Any]) -> dict[str, Any]:
    details = answer.get("details")
    return details if isinstance(details, dict) else {}


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")

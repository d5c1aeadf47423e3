"""A call to the API server, and what an error of the server means. Pure."""

import urllib.parse
from dataclasses import dataclass
from typing import Any

from slipway.resources.errors import PlatformFault, Unavailable
from slipway.resources.kubernetes.objects import Resource
from slipway.trainer.base import parsing

WRITES = ("create", "patch", "delete")
OF_THE_OBJECT = (400, 413, 422)
"""Statuses that say something of the object itself: it is refused until somebody changes it."""
OF_THE_PLATFORM = (403, 404, 405)
"""Statuses of a cluster in change: RBAC is rolled out, an operator is upgraded, a namespace is made."""
DENIAL = "denied the request"
"""In the answer of an admission webhook that lets an object not pass, under whatever status it chose: its policy may
change, and the object need not."""


class RefusedRequest(ValueError):
    """The API server refuses an object for what is in it: a repeated call is refused too. Nothing was changed."""


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
    """The JSON document of an answer; a body that is none becomes the document's message."""
    try:
        document = parsing.value(body)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {"message": body[:500].decode(errors="replace").strip()}


def is_of_a_missing_object(call: Call, status: int, answer: dict[str, Any]) -> bool:
    """Whether only the object is missing, and not its kind or its namespace."""
    return status == 404 and bool(call.name) and _details(answer).get("name") == call.name


def failure(call: Call, status: int, answer: dict[str, Any]) -> Exception:
    """The exception for an error: RefusedRequest where the object of a write is wrong, PlatformFault where the cluster
    does not let it pass as it is now, else Unavailable."""
    message = f"{call}: {_message(answer) or f'HTTP status {status}'}{_unnamed_fields(answer)}"
    if status == 404 and answer.get("kind") != "Status":
        message = f"{call}: {missing(call.resource)}"
    if status == 403 and " cannot " in _message(answer):
        message += f"; {_granting(call)}"
    if status == 409:
        return ObjectConflict(message)
    if call.verb not in WRITES or "exceeded quota" in message:  # a quota is used up today and free tomorrow
        return Unavailable(message)
    if is_of_a_missing_object(call, status, answer):
        return RefusedRequest(message)
    if status in OF_THE_PLATFORM or DENIAL in message:
        return PlatformFault(message)
    return RefusedRequest(message) if status in OF_THE_OBJECT else Unavailable(message)


def missing(resource: Resource) -> str:
    """The message for a kind that the cluster does not serve."""
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
    named = (
        [cause for cause in causes if isinstance(cause, dict) and cause.get("field")]
        if isinstance(causes, list)
        else []
    )
    unnamed = [cause for cause in named if str(cause["field"]) not in _message(answer)]
    return "".join(f"; {cause['field']}: {cause.get('message', '')}" for cause in unnamed)


def _message(answer: dict[str, Any]) -> str:
    """What the server says; a proxy in between may say anything."""
    return str(answer.get("message") or "")


def _details(answer: dict[str, Any]) -> dict[str, Any]:
    details = answer.get("details")
    return details if isinstance(details, dict) else {}


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")

"""What the API server is asked, and what it means when it answers with an error. Pure."""

import json
import urllib.parse
from dataclasses import dataclass
from typing import Any

from resources.kubernetes.objects import Resource
from resources.launcher.protocol import Unavailable

INSTALLED_BY = {
    "jobset.x-k8s.io": "JobSet",
    "kubeflow.org": "the Kubeflow training operator",
    "trainer.kubeflow.org": "Kubeflow Trainer",
    "kueue.x-k8s.io": "Kueue",
    "scheduling.volcano.sh": "Volcano",
}
WRITES = ("create", "patch", "delete")
FOR_THE_USER = (400, 403, 404, 405, 413, 422)
"""Statuses that stay what they are until somebody changes the request, the cluster or the permissions."""


class Refused(ValueError):
    """The API server does not do it, and asking again would not help. Nothing was changed."""


class Conflict(Unavailable):
    """Somebody else has changed the object meanwhile."""


@dataclass(frozen=True)
class Call:
    """What was asked of the server."""

    verb: str
    resource: Resource
    namespace: str = ""
    """Empty for all of them."""
    name: str = ""
    part: str = ""
    """A sub-resource: `log`."""

    @property
    def path(self) -> str:
        resource = self.resource
        place = ["namespaces", self.namespace] if self.namespace and resource.namespaced else []
        name = self.name if self.verb != "create" else ""
        parts = filter(None, [*place, resource.plural, name, self.part])
        return "/".join([f"/{'apis' if resource.group else 'api'}/{resource.api_version}", *map(_quoted, parts)])

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace and self.resource.namespaced else ""
        return f"cannot {self.verb} {' '.join(filter(None, [self.resource.kind, self.name, self.part]))}{where}"


def said(body: bytes) -> dict[str, Any]:
    """The document of an answer; what is no document is its message."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {"message": body[:500].decode(errors="replace").strip()}


def is_of_a_missing_object(call: Call, status: int, answer: dict[str, Any]) -> bool:
    """Whether the object that was asked for is not there, and not its whole kind or its namespace."""
    return status == 404 and bool(call.name) and _details(answer).get("name") == call.name


def failure(call: Call, status: int, answer: dict[str, Any]) -> Exception:
    """The exception for an error: Refused where a write is for somebody to put right, else Unavailable."""
    message = f"{call}: {answer.get('message') or f'HTTP status {status}'}{_unnamed_fields(answer)}"
    if status == 404 and answer.get("kind") != "Status":
        message = f"{call}: {missing(call.resource)}"
    if status == 403 and " cannot " in answer.get("message", ""):
        message += f"; {_granting(call)}"
    if status == 409:
        return Conflict(message)
    # A quota is used up today and free tomorrow.
    if status in FOR_THE_USER and call.verb in WRITES and "exceeded quota" not in message:
        return Refused(message)
    return Unavailable(message)


def missing(resource: Resource) -> str:
    """What to say where a kind is not served."""
    return (
        f"the cluster has no {resource.plural}.{resource.group} of version {resource.version}: "
        f"install {INSTALLED_BY.get(resource.group, 'its operator')}, or choose a launcher that does without it"
    )


def _granting(call: Call) -> str:
    kind = "Role" if call.resource.namespaced else "ClusterRole"
    what = "/".join(filter(None, [call.resource.plural, call.part]))
    rule = f'apiGroups ["{call.resource.group}"], resources ["{what}"], verbs ["{call.verb}"]'
    return f"a {kind} with the rule {rule}, bound to that user, would grant it"


def _unnamed_fields(answer: dict[str, Any]) -> str:
    """The fields that are wrong, as far as the message does not name them."""
    causes = [cause for cause in _details(answer).get("causes") or () if cause.get("field")]
    unnamed = [cause for cause in causes if cause["field"] not in answer.get("message", "")]
    return "".join(f"; {cause['field']}: {cause.get('message', '')}" for cause in unnamed)


def _details(answer: dict[str, Any]) -> dict[str, Any]:
    return answer.get("details") or {}


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")

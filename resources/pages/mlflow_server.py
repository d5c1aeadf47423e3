"""MLflow's server with roles: `python -m slipway.resources.pages.mlflow_server [options of mlflow server]`.

MLflow itself lets whoever reaches it edit everything. Here each request carries the token of this place, and then:

viewer      reads: pages, searches, artefacts
operator    also changes experiments, runs and what else is no model in the registry
promoter    also changes the registry's models and versions
the platform itself, by a password that is derived from the token, delivers what trainings have recorded

What is no reading that is named here is a change, so that a request of a later MLflow is refused to viewers until it is
named. MLflow starts its application from a name that it has in one place; here that name stands for the guarded one.
"""

import functools
import re
import sys
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from slipway.resources import access, identity
from slipway.resources.access import Access
from slipway.resources.pages.door import Door
from slipway.trainer.base import proxy_bypass

OPEN = ("/health", "/version")
READING = frozenset({"GET", "HEAD", "OPTIONS"})
SEARCHES = re.compile(
    r"/(?:ajax-)?api/\d\.0/(?:mlflow/)?(?:"
    r"(?:runs|experiments|logged-models|datasets|issues|traces|jobs|prompt-optimization/jobs)/search"
    r"|experiments/search-datasets|registered-models/get-latest-versions|artifacts/presigned-download-url"
    r"|traces/(?:batchGetInfos|metrics|calculate-filter-correlation)|ui-telemetry)/?"
)
"""What MLflow's pages and client read by POST, since the question is too long for an address."""
GRAPHQL = "/graphql"
"""MLflow's own answers questions alone: its one mutation is a test that changes nothing."""
REGISTRY = re.compile(r"registered-models|model-versions")


def refusal(rules: Access, method: str, path: str, person: str) -> str:
    """Why this person may not send such a request; empty where they may."""
    if reads(method, path):
        return ""
    if reason := rules.refusal(person):
        return f"{method} {path}: {reason}"
    if not REGISTRY.search(path):
        return ""
    reason = identity.refusal(identity.Asker("a request to MLflow", person), rules.promoters)
    return f"{method} {path}: {reason}" if reason else ""


def reads(method: str, path: str) -> bool:
    """Whether a request changes nothing."""
    if method in READING:
        return not path.endswith("/gateway-proxy")
    return method == "POST" and (path == GRAPHQL or SEARCHES.fullmatch(path) is not None)


class MlflowDoor(Door):
    """The door of the webserver, through which the platform itself comes as well."""

    def admits(self, headers: Headers) -> bool:
        return super().admits(headers) or self._access.is_platform(headers)


class Roles:
    """ASGI middleware: behind the door, what each person may send."""

    def __init__(self, app: ASGIApp, rules: Access) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        if self._rules.is_platform(headers):
            return await self._app(scope, receive, send)
        reason = refusal(self._rules, scope.get("method", "CONNECT"), scope["path"], self._rules.person(headers))
        if not reason:
            return await self._app(scope, receive, send)
        # As MLflow itself refuses, so that its pages and its client show the sentence.
        answer = JSONResponse({"error_code": "PERMISSION_DENIED", "message": reason}, 403)
        await answer(scope, receive, send)


def application() -> ASGIApp:
    """MLflow's application behind the door. Raises ValueError as `access.of_environment` does, and without a token."""
    from mlflow.server.fastapi_app import app

    return guarded(app, access.of_environment())


def guarded(app: ASGIApp, rules: Access) -> ASGIApp:
    """An application, as people by their roles and the platform may use it. Raises ValueError without a token."""
    if rules.token_file is None:
        raise ValueError(f"{access.TOKEN}: found none, expected a file with the token that people's proxy sends")
    return MlflowDoor(Roles(app, rules), rules, open=OPEN)


def serve() -> None:
    """Run MLflow's own command with this application in the place of its own."""
    proxy_bypass.bypass()
    try:
        rules = access.of_environment()
        guarded(Any, rules)  # type: ignore[arg-type]
    except ValueError as error:
        sys.exit(f"slipway: {error}")
    from mlflow import cli, server

    built = server._build_uvicorn_command

    @functools.wraps(built)
    def build_command(options: str, host: str, port: int, workers: int, app: str, *rest: Any, **named: Any) -> Any:
        command = built(options, host, port, workers, app, *rest, **named)
        assert command[-1] == app == "mlflow.server.fastapi_app:app", "MLflow starts its application by another name"
        return [*command[:-1], "--factory", f"{__spec__.name}:application"]

    server._build_uvicorn_command = build_command
    cli.cli(["server", *sys.argv[1:]])


if __name__ == "__main__":
    serve()

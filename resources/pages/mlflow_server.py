"""MLflow's server with roles: `python -m slipway.resources.pages.mlflow_server [options of mlflow server]`.

MLflow itself lets everybody who reaches it edit everything. Here each request must carry the token, and then:

viewer      reads pages, searches and artefacts
operator    also changes experiments, runs and everything else outside the model registry
promoter    also changes the models and versions of the registry
The platform itself uses a password that is derived from the token, and delivers what trainings have recorded.

Every request counts as a change unless it is listed here as a read, so that viewers cannot use new requests of a later
MLflow until they are listed. MLflow starts its application by name in one place; here that name is replaced by that of
the guarded application.
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
from slipway.resources.pages.access_middleware import Door
from slipway.trainer.base import proxy_bypass

OPEN = ("/health", "/version")
READING = frozenset({"GET", "HEAD", "OPTIONS"})
SEARCHES = re.compile(
    r"/(?:ajax-)?api/\d\.0/(?:mlflow/)?(?:"
    r"(?:runs|experiments|logged-models|datasets|issues|traces|jobs|prompt-optimization/jobs)/search"
    r"|experiments/search-datasets|registered-models/get-latest-versions|artifacts/presigned-download-url"
    r"|traces/(?:batchGetInfos|metrics|calculate-filter-correlation)|ui-telemetry)/?"
)
"""The reads that MLflow's pages and client send by POST, since the query is too long for an address."""
GRAPHQL = "/graphql"
"""MLflow's GraphQL endpoint only reads; its only mutation is a test that changes nothing."""
REGISTRY = re.compile(r"registered-models|model-versions")


def refusal(rules: Access, method: str, path: str, person: str) -> str:
    """Why this person may not send such a request; "" if they may."""
    if reads(method, path):
        return ""
    reason = rules.refusal(person)
    if reason:
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
    """The access control of the webserver, which also admits the platform itself."""

    def admits(self, headers: Headers) -> bool:
        return super().admits(headers) or self._access.is_platform(headers)


class Roles:
    """ASGI middleware behind the door that limits what each person may send."""

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
        # In the form of MLflow's own rejections, so that its pages and its client show the sentence.
        answer = JSONResponse({"error_code": "PERMISSION_DENIED", "message": reason}, 403)
        await answer(scope, receive, send)


def application() -> ASGIApp:
    """MLflow's application with access control. Raises ValueError as `access.of_environment` and without a token."""
    from mlflow.server.fastapi_app import app

    return guarded(app, access.of_environment())


def guarded(app: ASGIApp, rules: Access) -> ASGIApp:
    """An application with access control for people by role, and for the platform. Raises ValueError without token."""
    if rules.token_file is None:
        raise ValueError(f"{access.TOKEN}: found none, expected a file with the token that people's proxy sends")
    return MlflowDoor(Roles(app, rules), rules, open=OPEN)


def serve() -> None:
    """Run MLflow's own command with this application instead of MLflow's."""
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

"""Dagster's webserver with Slipway's pages under /slipway: `python -m slipway.resources.pages.webserver [its
options]`.

With a single server there is one address and one access control, and links from assets to their pages need no host.
Dagster builds its application from a class that it names in one place; here that name is replaced by a class with more
routes.
"""

import os
import sys
from pathlib import Path
from typing import Any

import yaml
from dagster._core.workspace.context import WorkspaceRequestContext
from dagster_webserver import app
from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount

from slipway.resources import access, platform
from slipway.resources.home import Home
from slipway.resources.identity import USER_TAG
from slipway.resources.pages import mutations
from slipway.resources.pages.access_middleware import Door
from slipway.resources.pages.health import problems
from slipway.resources.pages.routes import routes
from slipway.resources.run_coordinator import note_cancellation, requesting_person
from slipway.trainer.base import host_names, proxy_bypass


class PersonsContext(WorkspaceRequestContext):
    """The context of a person's request. A viewer's is read-only, and what it launches is tagged with the person."""

    person: str = ""

    def get_viewer_tags(self) -> dict[str, str]:
        """The tags that Dagster adds to a backfill, overriding typed ones. The run coordinator adds them to runs."""
        return {USER_TAG: self.person}


class SlipwayWebserver(DagsterWebserver[Any, Any]):
    """Dagster's webserver with access control, and with the pages of a durable tier before its own routes.

    The pages come first, since the last of Dagster's routes matches any path. Raises ValueError as
    `access.of_environment` and `host_names.named` do.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._access = access.of_environment()
        self._hosts = host_names.named()
        super().__init__(*arguments, **options)

    def build_middleware(self) -> list[Middleware]:
        door = Middleware(Door, access=self._access, prefix=self._app_path_prefix, hosts=self._hosts)
        return [door, *super().build_middleware()]

    def _make_request_context(self, conn: HTTPConnection) -> PersonsContext:
        base_context: WorkspaceRequestContext = super()._make_request_context(conn)
        person = self._access.person(conn.headers)
        requesting_person.set(person)
        context = PersonsContext(
            instance=base_context.instance,
            current_workspace=base_context.get_current_workspace(),
            process_context=base_context.process_context,
            version=base_context.version,
            source=conn,
            read_only=base_context.read_only or bool(self._access.refusal(person)),
        )
        context.person = person
        return context

    async def execute_graphql_request(
        self, request: Request, query: Any, variables: Any, operation_name: Any
    ) -> JSONResponse:
        """Execute a document, unless it changes something that this person or such a request may not change."""
        if not isinstance(query, str):
            return _problem(f"query: found {type(query).__name__}, expected a text", 400)
        refused = self._access.refusal(self._access.person(request.headers))
        reason = mutations.refusal(query, request.method, request.headers.get("content-type", ""), refused)
        if reason:
            return _problem(reason, 200)  # with another status, the UI would show the number instead of the sentence
        person = self._access.person(request.headers)
        if person:
            for backfill in mutations.argument_values(query, variables, "cancelPartitionBackfill", "backfillId"):
                await run_in_threadpool(note_cancellation, self._process_context.instance, backfill, person)
        answer: JSONResponse = await super().execute_graphql_request(request, query, variables, operation_name)
        return answer

    def _problems(self) -> dict[str, str]:
        return problems(durable_here(), self._process_context.instance)

    def build_routes(self) -> list[BaseRoute]:
        """The routes, below the path prefix if there is one."""
        pages: list[BaseRoute] = list(routes(durable_here(), self._problems, mlflow_here()))
        if self._app_path_prefix:
            pages = [Mount(self._app_path_prefix, routes=pages)]
        return [*pages, *super().build_routes()]  # type: ignore[no-untyped-call]


def _problem(message: str, status: int) -> JSONResponse:
    """A problem in the form of a GraphQL error."""
    return JSONResponse({"data": None, "errors": [{"message": message}]}, status)


def durable_here() -> Path:
    """The durable tier of this process. It reads only this field of the settings that SLIPWAY_PLATFORM names.

    Raises ValueError if the settings do not have it.
    """
    settings = platform.named(os.environ)
    if settings is None:
        return Home.of(os.environ).durable
    durable = _field(settings, "tiers", "durable")
    if not isinstance(durable, str):
        raise ValueError(f"{settings}: tiers.durable: found {durable!r}, expected a folder")
    return Path(durable)


def mlflow_here() -> str:
    """The address of MLflow for browsers, or ""."""
    settings = platform.named(os.environ)
    if settings is None:
        return Home.of(os.environ).mlflow_page
    page = _field(settings, "pages", "mlflow") or _field(settings, "tracking", "uri")
    return page if isinstance(page, str) and page.startswith(("https://", "http://")) else ""


def _field(settings: Path, section: str, name: str) -> Any:
    """A field of the settings as written, or None."""
    document = yaml.safe_load(settings.read_text(encoding="utf-8"))
    fields = document.get(section) if isinstance(document, dict) else None
    return fields.get(name) if isinstance(fields, dict) else None


def serve() -> None:
    """Run Dagster's own command with this class instead of Dagster's."""
    proxy_bypass.bypass()
    assert hasattr(app, "DagsterWebserver"), "Dagster builds its application from another name"
    vars(app)["DagsterWebserver"] = SlipwayWebserver
    try:
        access.of_environment()
        host_names.named()
    except ValueError as error:
        sys.exit(f"slipway: {error}")
    main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve()

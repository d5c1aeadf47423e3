"""The door of the webserver: no page, query or socket without the token, and none on behalf of another site's page,
nor under another site's name.

A browser sends what it knows (a password, a cookie, its place in the network) also with requests that a page of
another site makes it send, and Dagster takes mutations from such requests. Browsers say whose page it is
(`Sec-Fetch-Site`, https://www.w3.org/TR/fetch-metadata/): what comes from another site may only open a page. A page
whose own name leads here is of the same site, by the browser's rules: names are checked
(`slipway.trainer.base.host_names`).
"""

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from slipway.resources.access import Access
from slipway.trainer.base import host_names

OPEN = ("/server_info", "/slipway/live")
"""Versions alone, and that the process answers: probes ask without a token."""
OTHER_SITES = ("cross-site", "same-site")
ASK = {"WWW-Authenticate": 'Basic realm="Slipway: any name, and the token as the password", charset="UTF-8"'}


class Door:
    """ASGI middleware in front of an application below `prefix`.

    The paths `open` need no token. `hosts` are further names under which it answers; None: it answers under any.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        prefix: str = "",
        open: Collection[str] = OPEN,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts
        self._open = {f"{prefix}{path}" for path in open}

    def admits(self, headers: Headers) -> bool:
        """Whether a request comes in. Raises ValueError and OSError for a token that cannot be read."""
        return self._access.admits(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = None if scope["type"] == "lifespan" or scope["path"] in self._open else self._refused(scope)
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(1008)
        else:
            await refused(scope, receive, send)

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to a request that may not come in; None for one that may."""
        headers = Headers(scope=scope)
        bound = str((scope.get("server") or [""])[0])
        if self._hosts is not None and (reason := host_names.refusal(headers.getlist("host"), bound, self._hosts)):
            return PlainTextResponse(f"{reason}\n", host_names.MISDIRECTED)
        if _is_foreign(headers, scope.get("method", "")):
            return PlainTextResponse("found a request of another site's page, expected one of this site\n", 403)
        try:
            if not self.admits(headers):
                return PlainTextResponse("found no token, or another one; expected Slipway's\n", 401, ASK)
        except (OSError, ValueError) as error:
            return PlainTextResponse(f"the token cannot be read: {error}\n", 503)
        try:
            self._access.person(headers)
        except ValueError as error:  # it would be on record, as who did what
            return PlainTextResponse(f"{error}\n", 400)
        return None


def _is_foreign(headers: Headers, method: str) -> bool:
    """Whether another site's page sends this; a link that a person follows is not."""
    opens = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
    return headers.get("sec-fetch-site") in OTHER_SITES and not opens

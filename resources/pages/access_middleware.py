"""Access control of the webserver: every page, query and socket needs the token, and requests of other sites' pages are
rejected.

A browser also sends its credentials (a password, a cookie, its position in the network) with requests that a page of
another site triggers, and Dagster accepts mutations from such requests. Browsers tell which site a request comes from
(`Sec-Fetch-Site`, https://www.w3.org/TR/fetch-metadata/); a request from another site may only open a page. If another
site's name resolves to this server, the browser treats the two as the same site, so host names are checked too
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
"""The paths that need no token, for probes: they show only versions and that the process answers."""
OTHER_SITES = ("cross-site", "same-site")
ASK = {"WWW-Authenticate": 'Basic realm="Slipway: any name, and the token as the password", charset="UTF-8"'}


class Door:
    """ASGI middleware in front of an application below `prefix`.

    The paths `open` need no token. `hosts` are additional accepted host names; None accepts any name.
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
        """Whether a request is admitted. Raises ValueError and OSError if the token cannot be read."""
        return self._access.admits(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "lifespan" or scope["path"] in self._open
        refused = None if is_open else self._refused(scope)
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(1008)
        else:
            await refused(scope, receive, send)

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to a rejected request; None for an admitted one."""
        headers = Headers(scope=scope)
        bound = str((scope.get("server") or [""])[0])
        if self._hosts is not None:
            reason = host_names.refusal(headers.getlist("host"), bound, self._hosts)
            if reason:
                return PlainTextResponse(f"{reason}\n", host_names.MISDIRECTED)
        if _is_foreign(headers, scope.get("method", "")):
            return PlainTextResponse("found a request from another site's page, expected one from this site\n", 403)
        try:
            if not self.admits(headers):
                return PlainTextResponse("found no token, or another one; expected Slipway's\n", 401, ASK)
        except (OSError, ValueError) as error:
            return PlainTextResponse(f"the token cannot be read: {error}\n", 503)
        try:
            self._access.person(headers)
        except ValueError as error:  # the name would be recorded as the actor
            return PlainTextResponse(f"{error}\n", 400)
        return None


def _is_foreign(headers: Headers, method: str) -> bool:
    """Whether another site's page sends this request. Following a link from another site is allowed."""
    opens = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
    return headers.get("sec-fetch-site") in OTHER_SITES and not opens

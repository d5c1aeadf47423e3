"""Errors of the HTTP server itself (unknown name, path or method, too large a body) in OpenAI's form."""

from collections.abc import Awaitable, Callable, Collection
from typing import cast

from aiohttp import web

from slipway.serving.api import answering
from slipway.trainer.base import host_names

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware  # type: ignore[untyped-decorator]
async def as_documents(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn a refusal by aiohttp, which is plain text, into a document with the same status and headers."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = error.text if error.status == 413 else f"{error.reason}: {request.method} {request.path}"
        headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        return web.json_response(answering.problem(str(message)), status=error.status, headers=headers)


def under_names(names: Collection[str], open: Collection[str] = ()) -> Callable[..., Awaitable[web.StreamResponse]]:
    """A middleware that answers only under this machine's names and `names`; the paths `open`, of probes, under any."""

    @web.middleware  # type: ignore[untyped-decorator]
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        bound = request.get_extra_info("sockname") or ("",)
        reason = host_names.refusal(request.headers.getall("Host", []), str(bound[0]), names)
        if reason and request.path not in open:
            return web.json_response(answering.problem(reason), status=host_names.MISDIRECTED)
        return await handler(request)

    return cast(Callable[..., Awaitable[web.StreamResponse]], checked)

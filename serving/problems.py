"""Problems: what the HTTP server itself refuses (a path, a method, too large a body), as OpenAI's clients read it."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from serving.api import answering

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware  # type: ignore[untyped-decorator]
async def as_documents(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A refusal by aiohttp, which is plain text, becomes a document with the same status and headers."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = error.text if error.status == 413 else f"{error.reason}: {request.method} {request.path}"
        kept = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        return web.json_response(answering.problem(str(message)), status=error.status, headers=kept)

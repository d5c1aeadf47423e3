"""Posting: send a JSON document to an external server, such as a lineage catalogue or a trace collector.

A header may hold a key, and the server's answer appears in the logs of sensors. So messages never contain the value of
a header, even if the server repeats it. Redirects are not followed: they would send the key to another host, as a GET.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping

from slipway.resources import credentials
from slipway.resources.errors import Unavailable
from slipway.trainer.base import proxy_bypass

REFUSALS = (408, 429)
"""The 4xx status codes after which a retry makes sense."""
READ_BYTES = 1 << 16
"""How much of an error response is read."""
MESSAGE_LENGTH = 500
"""How many characters of an error response a message repeats."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error response."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float, what: str) -> None:
    """Post a document; `what` names it in messages, `headers` are added to the request.

    Raises Unavailable if the server is away, and ValueError if it rejects the document.
    """
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")
    try:
        with proxy_bypass.opener(url, _NoRedirects()).open(request, timeout=seconds) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        problem = f"{url}: it answered {error.code} {error.reason}"
        if 300 <= error.code < 400:
            problem = f"{problem} to {what}, expected no redirect: set the address to which the server has moved"
        elif not 400 <= error.code < 500 or error.code in REFUSALS:
            raise Unavailable(credentials.without(problem, headers.values())) from None
        else:
            problem = (
                f"{problem} to {what}: {credentials.without(_answer_text(error), headers.values())[:MESSAGE_LENGTH]}"
            )
        raise ValueError(credentials.without(problem, headers.values())) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(credentials.without(f"{url}: {error}", headers.values())) from None


def _answer_text(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(READ_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return "its answer was cut off"

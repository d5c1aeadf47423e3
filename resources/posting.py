"""Posting: a JSON document for a server of others, such as a catalogue of lineage or a collector of traces.

A header may hold a key, and what a server answers ends in the logs of sensors. So no value of a header is ever in a
message, even where the server repeats it, and no redirection is followed: it would take the key to another host, and
ask there for a page instead of posting.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping

from slipway.resources import credentials
from slipway.resources.errors import Unavailable
from slipway.trainer.base import proxy_bypass

REFUSALS = (408, 429)
"""Answers that say "later", among those that otherwise say "never"."""
READ_BYTES, MESSAGE_LENGTH = 1 << 16, 500
"""So much of what a server says about a refusal is read, and so many characters of that are repeated."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirection as an answer like any other."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float, what: str) -> None:
    """Post a document; `what` names it in messages, and `headers` are those that the server asks for.

    Raises Unavailable while the server is away, and ValueError for a document that it refuses.
    """
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")
    try:
        with proxy_bypass.opener(url, _NoRedirects()).open(request, timeout=seconds) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        problem = f"{url}: it answered {error.code} {error.reason}"
        if 300 <= error.code < 400:
            problem = f"{problem} to {what}, expected that it takes it there: set the address that it has moved to"
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
        return "the rest of its answer did not come"

"""A small client of the front that needs only the standard library."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.trainer.base import parsing, proxy_bypass

SECONDS = 300.0
READ_BYTES = 1 << 16
"""The most bytes to read of a refusal."""
SAID_BYTES = 200
"""The most bytes to repeat of a refusal that is not in OpenAI's form."""

NO_REASON = "the server refuses the request and gives no reason"


class NotAnswered(ValueError):
    """The server refuses the request, or does not answer; the message says why."""


def complete(url: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request; returns the answer as one document. Raises NotAnswered."""
    return next(_answer(url, {**document, "stream": False}))


def stream(url: str, document: Mapping[str, Any]) -> Iterator[str]:
    """Send a request; yields the pieces of the answer's text. Raises NotAnswered, possibly in the middle."""
    for event in _answer(url, {**document, "stream": True}):
        try:
            if "error" in event:
                raise NotAnswered(str(event["error"]["message"]) or f"{url}: {NO_REASON}")
            text: str = event["choices"][0]["text"]
        except (KeyError, TypeError, IndexError):
            raise NotAnswered(f"{url}: found an event in another form than OpenAI's, expected a served model") from None
        yield text


def _answer(url: str, document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    try:
        with proxy_bypass.opener(url).open(request, timeout=SECONDS) as response:
            if not document["stream"]:
                yield parsing.value(response.read())
                return
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield parsing.value(line[6:])
    except urllib.error.HTTPError as error:
        raise NotAnswered(_refusal(url, error)) from None
    except ValueError as error:
        raise NotAnswered(f"{url}: found an answer that is not JSON ({error}), expected a served model") from None
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswered(f"{url}: the server does not answer: {error}") from None


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    """The server's reason for refusing a request. A proxy in between may answer in another form."""
    answer = error.read(READ_BYTES)
    try:
        return str(parsing.value(answer)["error"]["message"]) or f"{url}: {NO_REASON}"
    except (ValueError, KeyError, TypeError):
        return f"{url}: the server answers {error.code} {error.reason}: {answer[:SAID_BYTES].decode(errors='replace')}"

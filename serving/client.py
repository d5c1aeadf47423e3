"""A small client of the front, with the standard library alone."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.trainer.base import parsing, proxy_bypass

SECONDS = 300.0
READ_BYTES, SAID_BYTES = 1 << 16, 200
"""So much of a refusal is read, and so much is repeated of one that is not in OpenAI's form."""

NO_REASON = "the server refuses the request and gives no reason"


class NotAnswered(ValueError):
    """The server refuses the request, or does not answer; the message says why."""


def complete(url: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request as one document. Raises NotAnswered."""
    return next(_answer(url, {**document, "stream": False}))


def stream(url: str, document: Mapping[str, Any]) -> Iterator[str]:
    """The text of an answer, as it is made. Raises NotAnswered, also in the middle."""
    for event in _answer(url, {**document, "stream": True}):
        try:
            refused = (str(event["error"]["message"]) or f"{url}: {NO_REASON}") if "error" in event else ""
            text: str = "" if refused else event["choices"][0]["text"]
        except (KeyError, TypeError, IndexError):
            raise NotAnswered(
                f"{url}: found an event that is none of OpenAI's, expected one of a served model"
            ) from None
        if refused:
            raise NotAnswered(refused)
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
        raise NotAnswered(f"{url}: found an answer that is no JSON ({error}), expected one of a served model") from None
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswered(f"{url}: the server does not answer: {error}") from None


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    """What a server says of a request that it does not answer; what stands in between may say it in its own way."""
    answer = error.read(READ_BYTES)
    try:
        return str(parsing.value(answer)["error"]["message"]) or f"{url}: {NO_REASON}"
    except (ValueError, KeyError, TypeError):
        return f"{url}: it answered {error.code} {error.reason}: {answer[:SAID_BYTES].decode(errors='replace')}"

"""A small client of the front, with the standard library alone."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.base import parsing

SECONDS = 300.0


class NotAnswered(ValueError):
    """The server refuses the request, or does not answer; the message says why."""


def complete(url: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request as one document. Raises NotAnswered."""
    return next(_answer(url, {**given, "stream": False}))


def stream(url: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The text of an answer, as it is made. Raises NotAnswered, also in the middle."""
    for event in _answer(url, {**given, "stream": True}):
        if "error" in event:
            raise NotAnswered(event["error"]["message"])
        yield event["choices"][0]["text"]


def _answer(url: str, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(given).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            if not given["stream"]:
                yield parsing.value(response.read())
                return
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield parsing.value(line[6:])
    except urllib.error.HTTPError as error:
        raise NotAnswered(parsing.value(error.read())["error"]["message"]) from None
    except OSError as error:
        raise NotAnswered(f"{url}: the server does not answer: {error}") from None

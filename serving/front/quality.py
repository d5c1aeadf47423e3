"""Compares the quality of both versions of a switch: each predicts the same texts from people's requests.

The measure is the bits per byte that a version needs for a text, which does not depend on its tokenizer. The comparison
uses `echo` with `logprobs`, which every server of OpenAI's completions supports. It compares one text at a time, so
that the requests themselves come first, and leaves out texts that do not fit in the queue.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any

import aiohttp

from slipway.serving.front.backends import Backend

Pair = tuple[Backend, Backend]
"""The old version and the new one."""
WAITING = 64
LONGEST = 4096
"""The most characters of a text to compare."""
SHORTEST = 16
SCORE_SECONDS = 60.0
FAULTS = 3
"""The versions count as unable to score texts after this many failed comparisons in a row."""


class QualityComparison:
    """Compares the two versions of one switch on the texts of requests."""

    def __init__(self, pair: Callable[[], Pair | None], add: Callable[[Pair, float], None]) -> None:
        """`pair` returns the versions to compare now; `add` receives the new version's loss above the old one's, in
        bits per byte."""
        self._pair = pair
        self._add = add
        self._texts: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self._faults = 0

    @property
    def works(self) -> bool:
        """Whether the versions can score texts."""
        return self._faults < FAULTS

    def begin(self) -> None:
        """Start with a new switch, whose versions may be able to score texts."""
        self._faults = 0

    def offer(self, document: Any) -> None:
        """Compare the text of a request that was just answered, if a switch is in progress."""
        text = written(document)
        if self._pair() is not None and self.works and len(text) >= SHORTEST:
            with contextlib.suppress(asyncio.QueueFull):
                self._texts.put_nowait(text[:LONGEST])

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Compare the offered texts until cancelled."""
        while True:
            text = await self._texts.get()
            pair = self._pair()
            if pair is None:
                continue
            try:
                old, new = [await bits_per_byte(session, backend, text) for backend in pair]
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
                self._faults += 1
                continue
            self._add(pair, new - old)
            self._faults = 0


async def bits_per_byte(session: aiohttp.ClientSession, backend: Backend, text: str) -> float:
    """The bits per byte of a text without its first token. Raises ClientError, TimeoutError and ValueError."""
    ask = {
        "model": backend.version.named(backend.model),
        "prompt": text,
        "max_tokens": 1,
        "temperature": 0,
        "echo": True,
        "logprobs": 1,
    }
    timeout = aiohttp.ClientTimeout(total=SCORE_SECONDS)
    async with session.post(f"{backend.url}/v1/completions", json=ask, timeout=timeout) as response:
        response.raise_for_status()
        document = await response.json()
    chances = document["choices"][0]["logprobs"]["token_logprobs"][1 : document["usage"]["prompt_tokens"]]
    return float(-sum(chances)) / math.log(2) / len(text.encode())


def written(document: Any) -> str:
    """The text that a person wrote: the prompt, or the last message of a chat."""
    if not isinstance(document, dict):
        return ""
    messages = document.get("messages")
    prompt = document.get("prompt")
    if isinstance(messages, list) and messages:
        prompt = messages[-1].get("content")
    return prompt if isinstance(prompt, str) else ""

"""Quality: both versions of a switch predict the same texts that people wrote, beside the traffic.

The bits that a version needs for each byte of a text say how well it knows such texts, whatever its tokenizer. They are
asked for in the way of every server of OpenAI's completions: `echo` with `logprobs`. One text at a time: people's
requests come first, and what does not fit in the queue is left out.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any

import aiohttp

from slipway.serving.front.backends import Backend

Pair = tuple[Backend, Backend]
"""The version before, and the new one."""
WAITING = 64
LONGEST = 4096
"""Characters of a text that are compared."""
SHORTEST = 16
SCORE_SECONDS = 60.0
FAULTS = 3
"""After so many failed comparisons in a row the versions count as unable to predict."""


class QualityComparison:
    """Compares the two versions of one switch on people's texts."""

    def __init__(self, pair: Callable[[], Pair | None], add: Callable[[Pair, float], None]) -> None:
        """`pair` gives the versions to compare now; `add` takes by how many bits per byte the new one is worse."""
        self._pair, self._add = pair, add
        self._texts: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self._faults = 0

    @property
    def works(self) -> bool:
        """Whether the versions can be asked."""
        return self._faults < FAULTS

    def begin(self) -> None:
        """Another switch begins, of versions that may be able to."""
        self._faults = 0

    def offer(self, document: Any) -> None:
        """The request that was just answered: its text is compared while a switch is under way."""
        text = written(document)
        if self._pair() is not None and self.works and len(text) >= SHORTEST:
            with contextlib.suppress(asyncio.QueueFull):
                self._texts.put_nowait(text[:LONGEST])

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Compare what is offered, for ever."""
        while True:
            text = await self._texts.get()
            if (pair := self._pair()) is None:
                continue
            try:
                old, new = [await bits_per_byte(session, backend, text) for backend in pair]
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
                self._faults += 1
                continue
            self._add(pair, new - old)
            self._faults = 0


async def bits_per_byte(session: aiohttp.ClientSession, backend: Backend, text: str) -> float:
    """What a backend needs for a text, without its first token. Raises ClientError, TimeoutError, and ValueError."""
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
    """What a person wrote: the prompt, or the last message of a chat."""
    if not isinstance(document, dict):
        return ""
    messages = document.get("messages")
    prompt = messages[-1].get("content") if isinstance(messages, list) and messages else document.get("prompt")
    return prompt if isinstance(prompt, str) else ""

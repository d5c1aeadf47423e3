"""Passing on: one request to a backend and its answer back, so that nothing is lost that can be saved.

Until the first byte has gone to the client, a backend that dies or fails is only one attempt: the request goes to
another version, or waits for the backend that is started anew. Afterwards nothing can be taken back, and the client
gets the error. A wrong request is the client's own affair, and no attempt; a request that each backend fails at
ends after a few tries, and speaks against none of them.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from slipway.serving.api import answering
from slipway.serving.front.backends import Backend
from slipway.serving.front.figures import FrontFigures, labels
from slipway.serving.front.switch import ModelSwitch
from slipway.trainer.base import parsing

WAIT_SECONDS = 60.0
"""How long a request waits for a backend that is being started."""
BUSY = 503
GONE = 499
"""Counted of a stream whose client went away, as proxies count it."""
VERSION_HEADER, CHECKPOINT_HEADER = "X-Slipway-Version", "X-Slipway-Checkpoint"
PASSED = ("Content-Type", "Cache-Control", "Retry-After")


TRIES = 4
"""So often is a request tried that backends answer with a fault of theirs: it may be the request that causes it."""
PAUSE_SECONDS = 0.05
"""Before a request is tried anew; four times as long for each fault."""


class _Failed(Exception):
    """An attempt failed before anything went to the client."""

    def __init__(self, problem: str, answered: bool = False) -> None:
        """`answered` says whether the backend said so itself."""
        super().__init__(problem)
        self.answered = answered


class _Gone(Exception):
    """The client went away: nobody's failure."""


@dataclass
class Passing:
    """One request on its way."""

    request: web.Request
    body: bytes
    document: Any
    switch: ModelSwitch
    session: aiohttp.ClientSession
    figures: FrontFigures
    only: str = ""
    """The checkpoint of the version that the request names; empty for any."""
    begun: float = field(default_factory=time.monotonic)
    began_to_answer: bool = False
    """Whether the first byte of an answer has gone out."""

    async def answer(self) -> web.StreamResponse:
        """The answer of the first backend that gives one."""
        failed, faults = frozenset[str](), list[Backend]()
        while True:
            backend = self.switch.choose(failed, self.only) or await self._backend_to_come()
            if backend is None:
                return self._nobody()
            try:
                answer = await self._attempt(backend)
            except _Failed as error:
                self._count(self.figures.retried, backend)
                self._blame([] if error.answered else [backend])
                faults += [backend] if error.answered else []
                failed |= {backend.version.checkpoint}
                if len(faults) >= TRIES or time.monotonic() - self.begun > WAIT_SECONDS:
                    self._blame(faults if len({fault.version for fault in faults}) == 1 else [])
                    return self._failed(str(error))
                if self.switch.choose(failed, self.only) is None:
                    failed = frozenset()  # who failed may have been started anew by then
                    await asyncio.sleep(PAUSE_SECONDS * 4 ** len(faults))
            else:
                self._blame(faults)
                return answer

    def _blame(self, backends: list[Backend]) -> None:
        """Count that each of them failed; nobody calls this for a request that both versions answer with a fault."""
        for backend in backends:
            self.switch.observed(backend).fail()

    async def _backend_to_come(self) -> Backend | None:
        """The backend that is ready first; None when none is coming, or not in time."""
        while (backend := self.switch.choose(only=self.only)) is None:
            remaining = WAIT_SECONDS - (time.monotonic() - self.begun)
            if remaining <= 0 or not self.switch.expects:
                return None
            try:
                await asyncio.wait_for(self.switch.changed.wait(), min(remaining, 1.0))
            except TimeoutError:
                continue
        return backend

    async def _attempt(self, backend: Backend) -> web.StreamResponse:
        """Raises _Failed."""
        backend.in_flight += 1
        self.switch.observed(backend).begin(time.monotonic())
        try:
            async with self.session.post(
                f"{backend.url}{self.request.path}",
                data=self._body(backend),
                headers={"Content-Type": "application/json"},
            ) as response:
                if response.status >= 500 and response.status != BUSY:
                    problem = f"{backend.version.named(self.switch.model)}: {(await response.text())[:500]}"
                    raise _Failed(problem, answered=True)
                if response.content_type == "text/event-stream":
                    return await self._stream(backend, response)
                content = await response.read()
                first = time.monotonic() - self.begun
                return self._pass_complete(backend, response, content, first)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _Failed(f"{backend.version.named(self.switch.model)}: {error}") from None
        except asyncio.CancelledError:
            if not self.began_to_answer:
                self.switch.observed(backend).give_up()
            raise
        finally:
            backend.in_flight -= 1

    def _body(self, backend: Backend) -> bytes:
        """The request with the name that the backend has."""
        return json.dumps({**self.document, "model": backend.version.named(self.switch.model)}).encode()

    def _pass_complete(
        self, backend: Backend, response: aiohttp.ClientResponse, content: bytes, first: float
    ) -> web.StreamResponse:
        if response.status == 200:
            tokens = parsing.value(content)["usage"]["completion_tokens"]
            self.switch.observed(backend).add(first, first / max(1, tokens))
            self.switch.note(self.document)
        elif response.status != BUSY:
            self.switch.observed(backend).put_back()
        self._finish(backend, response.status, first)
        return web.Response(body=content, status=response.status, headers=self._headers(backend, response))

    async def _stream(self, backend: Backend, response: aiohttp.ClientResponse) -> web.StreamResponse:
        """Pass the events on as they come; a backend that dies in the middle ends the stream with an error."""
        chunks = response.content.iter_any()
        chunk = await anext(chunks, b"")
        if not chunk:
            raise _Failed("it ended its answer before it began")
        first, events, status = time.monotonic() - self.begun, 0, 200
        out = web.StreamResponse(headers=self._headers(backend, response))
        self.began_to_answer = True
        try:
            with _going_away():
                await out.prepare(self.request)
            while chunk:
                events += chunk.count(b"data: ")
                with _going_away():
                    await out.write(chunk)
                chunk = await anext(chunks, b"")
            duration = time.monotonic() - self.begun
            self.switch.observed(backend).add(first, duration / max(1, events - 2))
            self.switch.note(self.document)
        except aiohttp.ClientError as error:
            status = 502
            self.switch.observed(backend).fail()
            with contextlib.suppress(_Gone), _going_away():
                await out.write(answering.error_event(f"the answer broke off: {error}"))
        except _Gone:
            status = GONE
        with contextlib.suppress(_Gone), _going_away():
            await out.write_eof()
        self._finish(backend, status, first)
        return out

    def _headers(self, backend: Backend, response: aiohttp.ClientResponse) -> dict[str, str]:
        passed = {name: response.headers[name] for name in PASSED if name in response.headers}
        version = backend.version
        return {**passed, VERSION_HEADER: version.named(self.switch.model), CHECKPOINT_HEADER: version.checkpoint}

    def _finish(self, backend: Backend, status: int, first: float) -> None:
        self._count(self.figures.requests, backend, status=str(status))
        if status == 200:
            at = labels(model=self.switch.model, version=backend.version.number)
            self.figures.first[at].add(first)
            self.figures.durations[at].add(time.monotonic() - self.begun)

    def _count(self, counter: Any, backend: Backend, **more: str) -> None:
        counter[labels(model=self.switch.model, version=backend.version.number, **more)] += 1

    def _nobody(self) -> web.Response:
        problem = self.switch.problem or f"model {self.switch.model}: nobody was ready within {WAIT_SECONDS:.0f} s"
        return self._failed(problem, BUSY)

    def _failed(self, problem: str, status: int = 502) -> web.Response:
        self.figures.requests[labels(model=self.switch.model, version="", status=str(status))] += 1
        headers = {"Retry-After": "5"} if status == BUSY else {}
        return web.json_response(answering.problem(problem, "server_error"), status=status, headers=headers)


@contextlib.contextmanager
def _going_away() -> Iterator[None]:
    """Tells a client that went away from a backend that broke off; aiohttp raises the same errors for both."""
    try:
        yield
    except ConnectionError as error:
        raise _Gone from error

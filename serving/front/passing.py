"""Passes one request to a backend and the answer back, with retries as long as these are possible.

Until the first byte has gone to the client, the failure of a backend is only one failed attempt: the request goes to
another version, or waits until the backend is restarted. After the first byte the client gets the error. An invalid
request is answered with the client's error and not retried. A request on which every backend fails ends after a few
attempts, and does not count against any of the backends.
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
"""Seconds that a request waits for a backend to start."""
BUSY = 503
GONE = 499
"""The status that is counted if the client of a stream disconnects, as proxies count it."""
VERSION_HEADER = "X-Slipway-Version"
CHECKPOINT_HEADER = "X-Slipway-Checkpoint"
PASSED = ("Content-Type", "Cache-Control", "Retry-After")


TRIES = 4
"""The most attempts that end in a backend's own error, because the request itself may cause it."""
PAUSE_SECONDS = 0.05
"""Seconds before a request is retried, times four for each fault."""


class _Failed(Exception):
    """An attempt failed before anything went to the client."""

    def __init__(self, problem: str, answered: bool = False) -> None:
        """`answered` says whether the backend itself answered with the error."""
        super().__init__(problem)
        self.answered = answered


class _Gone(Exception):
    """The client disconnected, which does not count as a failure."""


@dataclass
class Passing:
    """One request in progress."""

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
    """Whether the first byte of an answer has been sent."""

    async def answer(self) -> web.StreamResponse:
        """The answer of the first backend that gives one."""
        failed = frozenset[str]()
        faults = list[Backend]()
        while True:
            backend = self.switch.choose(failed, self.only) or await self._backend_to_come()
            if backend is None:
                return self._nobody()
            try:
                answer = await self._attempt(backend)
            except _Failed as error:
                self._count(self.figures.retried, backend)
                if error.answered:
                    faults.append(backend)
                else:
                    self._blame([backend])
                failed |= {backend.version.checkpoint}
                if len(faults) >= TRIES or time.monotonic() - self.begun > WAIT_SECONDS:
                    if len({fault.version for fault in faults}) == 1:
                        self._blame(faults)
                    return self._failed(str(error))
                if self.switch.choose(failed, self.only) is None:
                    failed = frozenset()  # the failed backends may have restarted after the pause
                    await asyncio.sleep(PAUSE_SECONDS * 4 ** len(faults))
            else:
                self._blame(faults)
                return answer

    def _blame(self, backends: list[Backend]) -> None:
        """Count a failure of each backend. The caller leaves out requests on which both versions fail."""
        for backend in backends:
            self.switch.observed(backend).fail()

    async def _backend_to_come(self) -> Backend | None:
        """Wait for a backend to be ready; None if none is starting, or none is ready in time."""
        while True:
            backend = self.switch.choose(only=self.only)
            if backend is not None:
                return backend
            remaining = WAIT_SECONDS - (time.monotonic() - self.begun)
            if remaining <= 0 or not self.switch.expects:
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.switch.changed.wait(), min(remaining, 1.0))

    async def _attempt(self, backend: Backend) -> web.StreamResponse:
        """Send the request to a backend and pass its answer on. Raises _Failed."""
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
        """The request's body with the backend's own model name."""
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
        """Pass the events on as they arrive. If the backend dies in the middle, the stream ends with an error."""
        chunks = response.content.iter_any()
        chunk = await anext(chunks, b"")
        if not chunk:
            raise _Failed("the backend closed the stream before the first byte")
        first = time.monotonic() - self.begun
        events = 0
        status = 200
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
        problem = self.switch.problem or f"model {self.switch.model}: no version was ready in {WAIT_SECONDS:.0f} s"
        return self._failed(problem, BUSY)

    def _failed(self, problem: str, status: int = 502) -> web.Response:
        self.figures.requests[labels(model=self.switch.model, version="", status=str(status))] += 1
        headers = {"Retry-After": "5"} if status == BUSY else {}
        return web.json_response(answering.problem(problem, "server_error"), status=status, headers=headers)


@contextlib.contextmanager
def _going_away() -> Iterator[None]:
    """Raise _Gone if the client disconnects: aiohttp raises the same errors for clients and for backends."""
    try:
        yield
    except ConnectionError as error:
        raise _Gone from error

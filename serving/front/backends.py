"""Backends: each answers with one version of a model, as a local worker process or as a Service of vLLM pods.

A backend never changes its version: a new version has a new backend, and a backend that has died is replaced.
"""

import abc
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Literal

import aiohttp

from slipway.serving.records import ServedVersion, service_name
from slipway.trainer.base import parsing

DRAIN_SECONDS = 300.0
"""Seconds for the answers in progress when their version loses the traffic."""
END_SECONDS = 15.0
"""Seconds for a worker process to exit before it is killed."""
HEALTH_SECONDS = 1.0
BackendState = Literal["starting", "ready", "refused", "dead"]


class Backend(abc.ABC):
    """Answers requests with one version of a model."""

    def __init__(self, model: str, version: ServedVersion) -> None:
        self.model = model
        self.version = version
        self.state: BackendState = "starting"
        self.why = ""
        """The reason why the backend is refused or dead."""
        self.url = ""
        self.in_flight = 0
        self.changed = asyncio.Event()
        """Set when the state changes."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Start the backend, without waiting until it is ready."""

    @abc.abstractmethod
    async def end(self) -> None:
        """Stop the backend, which has no requests in progress."""

    async def retire(self) -> None:
        """Finish the answers in progress, then stop. The backend gets no new requests."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.in_flight:
                    await asyncio.sleep(0.02)
        await self.end()

    def _is(self, state: BackendState, why: str = "") -> None:
        self.state = state
        self.why = why
        self.changed.set()


class LocalWorker(Backend):
    """A worker process on this machine, which ends with the front's process."""

    def __init__(self, model: str, version: ServedVersion, durable: Path) -> None:
        super().__init__(model, version)
        self._durable = durable
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The pid of the process; 0 before it starts."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        order = {
            "folder": str(self._durable / self.version.folder),
            "manifest": self.version.manifest,
            "model": self.version.named(self.model),
            "fingerprint": self.version.fingerprint(self.model),
        }
        command = [
            sys.executable,
            "-P",
            "-m",
            "slipway.serving.worker",
            "--order",
            json.dumps(order),
            "--parent",
            str(os.getpid()),
        ]
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        self._watch = asyncio.create_task(self._until_it_ends())

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), END_SECONDS)
            except TimeoutError:  # the process hangs, and no answers are in progress that a kill would lose
                self._process.kill()
        if self._watch is not None:
            await self._watch

    async def _until_it_ends(self) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        message: dict[str, object] = {}
        with contextlib.suppress(ValueError):
            message = parsing.value(await process.stdout.readline() or b"{}")
        if "url" in message:
            self.url = str(message["url"])
            self._is("ready")
        code = await process.wait()
        if "refused" in message:
            self._is("refused", str(message["refused"]))
        else:
            self._is("dead", f"its process ended with exit code {code}")


class ClusterService(Backend):
    """The pods of one version on a cluster, behind a Service. The front does not start or stop the pods."""

    def __init__(self, model: str, version: ServedVersion, url: str, session: aiohttp.ClientSession) -> None:
        super().__init__(model, version)
        self.url = url
        self._session = session
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._watch = asyncio.create_task(self._look())

    async def end(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _look(self) -> None:
        while True:
            ready = False
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._session.get(f"{self.url}/health", timeout=aiohttp.ClientTimeout(total=5)) as response:
                    ready = response.status == 200
            if ready != (self.state == "ready"):
                self._is("ready" if ready else "starting", "" if ready else "no pod of it is ready")
            await asyncio.sleep(HEALTH_SECONDS)


@dataclasses.dataclass(frozen=True)
class BackendMaker:
    """Makes the backends of one installation."""

    durable: Path
    session: aiohttp.ClientSession
    service: str = ""
    """On a cluster, the URL of a version's Service, with {name} in it; empty for local worker processes."""

    def make(self, model: str, version: ServedVersion) -> Backend:
        """The backend of a version, not started."""
        if not self.service:
            return LocalWorker(model, version, self.durable)
        return ClusterService(model, version, self.service.format(name=service_name(model, version)), self.session)

"""Backends: what answers with one version. A worker process here; on a cluster, the service of vLLM's pods.

A backend is never changed: another version is another backend, and one that has died is replaced.
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
"""What answers may take that are under way when their version has lost the traffic."""
END_SECONDS = 15.0
"""What a worker process may take to end before it is killed."""
HEALTH_SECONDS = 1.0
BackendState = Literal["starting", "ready", "refused", "dead"]


class Backend(abc.ABC):
    """What answers with one version of a model."""

    def __init__(self, model: str, version: ServedVersion) -> None:
        self.model, self.version = model, version
        self.state: BackendState = "starting"
        self.why = ""
        """Why it is refused or dead."""
        self.url = ""
        self.in_flight = 0
        self.changed = asyncio.Event()
        """Set when the state is another."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Begin; returns at once."""

    @abc.abstractmethod
    async def end(self) -> None:
        """End, once nothing is under way."""

    async def retire(self) -> None:
        """Let what is under way end, then end; nobody gives it a further request."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.in_flight:
                    await asyncio.sleep(0.02)
        await self.end()

    def _is(self, state: BackendState, why: str = "") -> None:
        self.state, self.why = state, why
        self.changed.set()


class LocalWorker(Backend):
    """A worker process of this machine, which ends with this one."""

    def __init__(self, model: str, version: ServedVersion, durable: Path) -> None:
        super().__init__(model, version)
        self._durable = durable
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process; 0 before there is one."""
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
            except TimeoutError:  # it hangs: nothing is under way any more, so nothing is lost
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
    """The pods of one version on a cluster, behind a Service; whoever applies the objects starts and ends them."""

    def __init__(self, model: str, version: ServedVersion, url: str, session: aiohttp.ClientSession) -> None:
        super().__init__(model, version)
        self.url, self._session = url, session
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
    """Makes the backends of one platform."""

    durable: Path
    session: aiohttp.ClientSession
    service: str = ""
    """On a cluster the URL of a version's service, with {name}; empty for worker processes here."""

    def make(self, model: str, version: ServedVersion) -> Backend:
        """The backend of a version, not started yet."""
        if not self.service:
            return LocalWorker(model, version, self.durable)
        return ClusterService(model, version, self.service.format(name=service_name(model, version)), self.session)

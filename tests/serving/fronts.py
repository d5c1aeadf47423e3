"""Fronts of the tests: the real process over a folder of records, and clients that ask it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.serving.records import ServedVersion, ServingRecords, ServingWish, SwitchPolicy
from slipway.trainer.base import processes
from tests.conftest import until

MODEL = "small"
ROOT = Path(__file__).parents[2]


@dataclass
class RunningFront:
    """A front and its records."""

    records: ServingRecords
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        address = self.records.front()
        assert address is not None
        return address.url

    def wish(self, version: ServedVersion | None, policy: SwitchPolicy | None = None) -> int:
        """Want a version, or nothing; returns the number of the wish."""
        return wish(self.records, version, policy)

    def outcome(self, number: int) -> str:
        """What came of a wish; waits for it."""
        return str(until(lambda: self._outcome(number), f"the verdict over wish {number}"))

    def _outcome(self, number: int) -> str:
        verdict = self.records.state(MODEL).verdict if self.records.state(MODEL).number == number else None
        return verdict.outcome if verdict else ""

    def ask(self, path: str = "/v1/completions", **fields: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, document and headers of an answer."""
        document = {"model": MODEL, "max_tokens": 8, "temperature": 0, **fields}
        if path.endswith("/completions") and "messages" not in document:
            document.setdefault("prompt", "def f(x):")
        return call(f"{self.url}{path}", document)

    def stream(self, path: str = "/v1/completions", **fields: Any) -> list[dict[str, Any]]:
        """The events of a streamed answer, without the last one, [DONE]."""
        document = {"model": MODEL, "stream": True, "temperature": 0, **fields}
        with urllib.request.urlopen(_post(f"{self.url}{path}", document), timeout=120) as response:
            events = [line[6:].strip() for line in response if line.startswith(b"data: ")]
        assert events[-1] == b"[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def leave_stream(self, **fields: Any) -> None:
        """Ask for a stream, and go away after its first event."""
        document = {"model": MODEL, "stream": True, "prompt": "def f(x):", **fields}
        with urllib.request.urlopen(_post(f"{self.url}/v1/completions", document), timeout=120) as response:
            assert response.readline().startswith(b"data: ")

    def shares(self) -> list[dict[str, Any]]:
        """Who answers which share, as the front says."""
        shares: list[dict[str, Any]] = json.loads(self.get("/serving")[1])[MODEL]["shares"]
        return shares

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def workers(self) -> list[int]:
        """The pids of its workers."""
        return processes.children(self.process.pid)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def wish(records: ServingRecords, version: ServedVersion | None, policy: SwitchPolicy | None = None) -> int:
    """Want a version, or nothing."""
    state = records.state(MODEL)
    want = "serve" if version else "stop"
    new_wish = ServingWish(want, "a test", "asked", version, state.settled, False, policy or SwitchPolicy())  # type: ignore[arg-type]
    assert records.wish(state, new_wish)
    return state.number + 1


@contextlib.contextmanager
def front(durable: Path, threads: int = 1) -> Iterator[RunningFront]:
    """A front that listens; its workers compute on so many threads."""
    records = ServingRecords(durable)
    process = start(durable, threads)
    try:
        until(lambda: (address := records.front()) is not None and address.pid == process.pid, "the front to listen")
        yield RunningFront(records, process)
    finally:
        process.terminate()
        process.wait(60)


def start(durable: Path, threads: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "slipway.serving", "--durable", str(durable), "--stay"]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    )


def call(url: str, document: Any, seconds: float = 120) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Post a JSON document. Raises TimeoutError."""
    try:
        with urllib.request.urlopen(_post(url, document), timeout=seconds) as response:
            return response.status, json.load(response), dict(response.headers)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), dict(error.headers)


def _post(url: str, document: Any) -> urllib.request.Request:
    return urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})


@dataclass
class Load:
    """Clients that ask one after the other until they are stopped; each answer is kept, and each failure."""

    front: RunningFront
    clients: int = 4
    tokens: int = 8
    versions: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __enter__(self) -> "Load":
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(index,)) for index in range(self.clients)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, client: int) -> None:
        while not self._over.is_set():
            try:
                status, answer, headers = self.front.ask(
                    prompt="import os, sys  # a line of text", max_tokens=self.tokens
                )
            except OSError as error:
                self.failures.append(str(error))
                continue
            if status != 200 or not answer["choices"]:
                self.failures.append(f"{status}: {answer}")
            else:
                assert answer["model"] == headers["X-Slipway-Version"]
                self.versions.append(answer["model"])
            time.sleep(0.002 * client)

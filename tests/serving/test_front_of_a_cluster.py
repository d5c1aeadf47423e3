"""Fronts of a cluster: two of them before the Services of versions, whose pods come when they come.

In the place of the cluster's Services stands a proxy; behind it are real workers, which answer as vLLM does.
"""

import contextlib
import http.server
import itertools
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slipway.assets.suites.generation import generate
from slipway.serving.front.rollout import LEAST_PAIRS
from slipway.serving.records import ServedVersion, ServingRecords, SwitchPolicy, SwitchVerdict, service_name
from tests.conftest import until
from tests.embedded.slipway import free_port
from tests.serving.fronts import MODEL, ROOT, call, wish
from tests.serving.models import exported

pytestmark = pytest.mark.slow
CANARY = SwitchPolicy(share=0.25, least_requests=8, latency_ratio=1000.0, quality_margin=1000.0)
"""Speed and quality are compared and decide nothing: a busy machine has no speed, and random weights no quality."""


class Services(http.server.ThreadingHTTPServer):
    """The Services of a cluster: http://…/<name>/… is answered by the pods of that name, or by a 503 without one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.pods: dict[str, str] = {}
        """By the name of a Service, the URL of its pods; empty for pods that fail every request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{{name}}"


class _Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._pass(None)

    def do_POST(self) -> None:
        self._pass(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass(self, body: bytes | None) -> None:
        assert isinstance(self.server, Services)
        _, name, path = self.path.split("/", 2)
        if (pods := self.server.pods.get(name)) is None:
            return self._say(503, b"no pod is ready")
        if not pods:
            return self._say(200 if path == "health" else 500, b"{}")
        try:
            request = urllib.request.Request(f"{pods}/{path}", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                self._say(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            self._say(error.code, error.read())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@dataclass
class ServedCluster:
    """Two fronts over the records of one durable tier."""

    records: ServingRecords
    services: Services
    fronts: tuple[str, str]
    pods: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _turn: Iterator[int] = field(default_factory=itertools.count)

    def ready(self, version: ServedVersion) -> None:
        """Let the pods of a version be ready."""
        url = self.pods.enter_context(generate.worker(self.records.durable, MODEL, version))
        self.services.pods[service_name(MODEL, version)] = url

    def ask(self) -> str:
        """Who answers a request to one front after the other."""
        front = self.fronts[next(self._turn) % 2]
        document = {"model": MODEL, "prompt": "import os, sys  # a line of text", "max_tokens": 4, "temperature": 0}
        status, answer, _ = call(f"{front}/v1/completions", document)
        assert status == 200, answer
        return str(answer["model"])

    def ask_until_judged(self, number: int) -> list[str]:
        """Who answers until there is a verdict over a wish."""
        answered: list[str] = []

        def judged() -> bool:
            answered.append(self.ask())
            state = self.records.state(MODEL)
            return state.number == number and state.verdict is not None

        until(judged, f"the verdict over wish {number}")
        return answered

    def verdict(self) -> SwitchVerdict:
        switch_verdict = self.records.state(MODEL).verdict
        assert switch_verdict is not None
        return switch_verdict


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    """A cluster whose fronts listen, and that serves version 1."""
    services, ports = Services(), (free_port(), free_port())
    threading.Thread(target=services.serve_forever, daemon=True).start()
    command = [sys.executable, "-m", "slipway.serving", "--durable", str(tmp_path), "--service", services.url, "--port"]
    fronts = [subprocess.Popen([*command, str(port)], cwd=ROOT) for port in ports]
    one, other = (f"http://127.0.0.1:{port}" for port in ports)
    served_cluster = ServedCluster(ServingRecords(tmp_path), services, (one, other))
    try:
        with served_cluster.pods:
            first = exported(tmp_path, 1)
            wish(served_cluster.records, first)
            served_cluster.ready(first)
            until(lambda: served_cluster.records.state(MODEL).verdict, "the first version to be served")
            until(lambda: all(_answers(url) for url in served_cluster.fronts), "both fronts to answer")
            yield served_cluster
    finally:
        for front in fronts:
            front.terminate()
        for front in fronts:
            front.wait(60)
        services.shutdown()
        services.server_close()


def _answers(front: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{front}/health", timeout=10) as answer:
        return bool(answer.status == 200)
    return False


def test_a_canary_gets_its_share_once_its_pods_are_ready_and_all_once_it_is_compared(cluster: ServedCluster):
    second = exported(cluster.records.durable, 2)
    number = wish(cluster.records, second, CANARY)
    assert {cluster.ask() for _ in range(12)} == {f"{MODEL}@1"}  # it has no pod yet
    cluster.ready(second)
    answered = cluster.ask_until_judged(number)
    verdict = cluster.verdict()
    assert verdict.outcome == "all" and verdict.figures["compared_texts"] >= LEAST_PAIRS, verdict
    assert {"old_first_seconds", "new_first_seconds", "old_failed", "new_failed"} <= verdict.figures.keys()
    new = answered.count(f"{MODEL}@2")
    assert new >= CANARY.least_requests and answered.count(f"{MODEL}@1") >= 2 * new
    until(lambda: {cluster.ask() for _ in range(4)} == {f"{MODEL}@2"}, "both fronts to follow the verdict")


def test_a_canary_whose_pods_fail_goes_back_and_no_request_is_lost(cluster: ServedCluster):
    third = exported(cluster.records.durable, 3)
    cluster.services.pods[service_name(MODEL, third)] = ""
    number = wish(cluster.records, third, CANARY)
    answered = cluster.ask_until_judged(number)
    verdict = cluster.verdict()
    assert verdict.outcome == "back" and "requests failed" in verdict.why, verdict
    assert set(answered) == {f"{MODEL}@1"}

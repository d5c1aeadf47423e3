"""The exporter of a job: a process beside the ranks that serves their metrics, where the environment asks for it."""

import contextlib
import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from slipway.trainer.metrics import exporter
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Heartbeat
from tests.cli import homes
from tests.conftest import until


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def scraped(port: int) -> str:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer,
    ):
        return str(answer.read().decode())
    return ""


def test_a_process_of_its_own_serves_the_figures_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, port = homes.running(homes.home(tmp_path), "tiny", 10), free()
    monkeypatch.setenv("SLIPWAY_NODE", "node-0")
    Heartbeat(store.folder, Token(1), 0).beat("training", 11)
    monkeypatch.setenv(exporter.VARIABLE, str(port))
    (pid,) = exporter.start(store.folder, 1, "node-0")
    try:
        assert 'node="node-0",rank="0"} 11.0' in until(lambda: scraped(port), "the metrics")
        os.kill(pid, signal.SIGTERM)
        assert "slipway_job_loss{" in scraped(port)  # the end of a job is scraped too
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_without_the_variable_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(exporter.VARIABLE, raising=False)
    assert exporter.start(tmp_path, 1, "node-0") == ()


@pytest.mark.parametrize("value", ["none", "0", "65536"])
def test_a_wrong_port_costs_the_metrics_and_nothing_else(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(exporter.VARIABLE, value)
    assert exporter.start(tmp_path, 1, "node-0") == ()
    assert f"{exporter.VARIABLE}={value}: expected a port from 1 to 65535" in capfd.readouterr().err


def test_a_port_in_use_costs_the_metrics_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as taken:
        monkeypatch.setenv(exporter.VARIABLE, str(taken.getsockname()[1]))
        assert exporter.start(tmp_path, 1, "node-0") == ()

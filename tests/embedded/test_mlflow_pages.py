"""MLflow's pages beside an instance: served without a word, never waited for, and ended with it."""

import http.client
import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from slipway.deploy.embedded import mlflow_pages
from slipway.trainer.base import processes
from tests.conftest import until
from tests.embedded.slipway import Slipway


def free(port: int) -> bool:
    return port != 3001


@pytest.mark.parametrize(
    ("environ", "after", "port"),
    [
        ({}, 4000, 4001),
        ({}, 3000, 0),
        ({"SLIPWAY_MLFLOW_PORT": "5000"}, 3000, 5000),
        ({"SLIPWAY_MLFLOW_PORT": "off"}, 3000, None),
        ({"SLIPWAY_MLFLOW_PAGE": "https://mlflow.example"}, 3000, None),
        ({"SLIPWAY_TOKEN_FILE": "/a/token"}, 3000, None),
    ],
)
def test_the_environment_says_whether_and_where_the_pages_are(environ: dict[str, str], after: int, port: int | None):
    assert mlflow_pages.port(after, free, environ) == port


@pytest.mark.parametrize(("text", "problem"), [("3001", "port 3001 in use"), ("many", "'many', expected a port")])
def test_a_port_that_cannot_be_used_is_refused_in_words(text: str, problem: str):
    with pytest.raises(ValueError, match=f"SLIPWAY_MLFLOW_PORT: found {problem}"):
        mlflow_pages.port(3000, free, {"SLIPWAY_MLFLOW_PORT": text})


@pytest.mark.nightly
def test_an_instance_serves_mlflow_and_goes_on_without_it(slipway: Slipway):
    del slipway.environ["SLIPWAY_MLFLOW_PORT"]
    process = slipway.start("dev")
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    ui, pages = (re.search(r"http://[\d.:]+", line)[0] for line in lines)  # type: ignore[index]
    until(lambda: answer(f"{pages}/health") == "OK", "MLflow to answer")
    assert Path(slipway.home.root / "mlflow.db").exists()
    serving = [pid for pid in slipway_processes(slipway) if "mlflow" in processes.command_line(pid)]
    assert serving
    os.killpg(os.getpgid(serving[0]), signal.SIGKILL)  # MLflow serves in a process of its own
    until(lambda: answer(f"{pages}/health") == "", "MLflow to be gone")
    assert answer(f"{ui}/server_info") and process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    until(lambda: slipway_processes(slipway) == [], "all of it to end")


def slipway_processes(slipway: Slipway) -> list[int]:
    return list(processes.carrying({"SLIPWAY_CONTROL_PLANE": str(slipway.home.root)}))


def answer(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return str(response.read().decode())
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        return ""

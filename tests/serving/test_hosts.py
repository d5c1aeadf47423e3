"""Host on the front: a page of another site whose name leads here (DNS rebinding) is answered by nobody."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from slipway.trainer.base import host_names
from tests.conftest import until
from tests.serving.fronts import ROOT, RunningFront, front


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFront]:
    """A front that serves no model, and has one further name."""
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv(host_names.VARIABLE, "models.example")
        with front(tmp_path_factory.mktemp("durable")) as started:
            until(lambda: _response(started, "/live", "localhost")[0] == 200, "the front to answer")
            yield started


def _response(running: RunningFront, path: str, host: str, body: object = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=60)
    data = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, data, {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("path", ["/", "/serving", "/v1/models", "/metrics", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example:8000", "0.0.0.0:8000", "10.9.8.7"])
def test_no_page_is_shown_under_a_name_that_is_none_of_the_fronts(running: RunningFront, path: str, host: str):
    status, body = _response(running, path, host)
    message = json.loads(body)["error"]["message"]
    assert status == 421 and message.startswith(f"Host: found '{host}', expected") and "SLIPWAY_HOSTS" in message


def test_no_prompt_is_answered_under_another_name(running: RunningFront):
    for path in ("/v1/completions", "/v1/chat/completions"):
        assert _response(running, path, "evil.example:8000", {"prompt": "a"})[0] == 421


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "models.example"])
def test_the_front_answers_under_this_machines_names_and_those_in_the_settings(running: RunningFront, host: str):
    assert _response(running, "/v1/models", host) == (200, '{"object": "list", "data": []}')


def test_probes_are_answered_under_any_name(running: RunningFront):
    assert [_response(running, path, "10.244.0.7:8000")[0] for path in ("/live", "/health")] == [200, 200]


def test_a_setting_that_is_no_name_ends_the_front_with_a_sentence(tmp_path: Path):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), host_names.VARIABLE: "https://models.example"}
    command = [sys.executable, "-m", "slipway.serving", "--durable", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "SLIPWAY_HOSTS: found 'https" in done.stderr

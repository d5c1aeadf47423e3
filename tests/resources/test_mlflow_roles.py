"""Roles in front of MLflow: a real server with the door of Slipway, people as a proxy sends them, and the platform."""

import base64
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from slipway.resources import access, credentials
from slipway.resources.access import Access
from slipway.resources.mlflow.tracking import BEARER, Tracking
from slipway.resources.pages import mlflow_server
from tests.conftest import until
from tests.kubernetes import settings

TOKEN, HEADER = "0123456789abcdef-the-token", "X-Forwarded-User"
VIEWER, OPERATOR, PROMOTER = "vic@x.example", "oda@x.example", "pia@x.example"
RULES = Access(None, HEADER, frozenset({OPERATOR}), frozenset({PROMOTER}))
API = "/ajax-api/2.0/mlflow"
READING = [
    ("GET", "/"), ("GET", f"{API}/runs/get"), ("GET", "/get-artifact"), ("POST", f"{API}/runs/search"),
    ("POST", "/api/2.0/mlflow/experiments/search"), ("POST", "/ajax-api/3.0/mlflow/traces/search"),
    ("POST", f"{API}/registered-models/get-latest-versions"), ("POST", "/graphql"),
]  # fmt: skip
CHANGING = [
    ("POST", f"{API}/experiments/delete"), ("POST", f"{API}/runs/delete"), ("POST", f"{API}/runs/log-batch"),
    ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/a"), ("PUT", "/api/2.0/mlflow-artifacts/artifacts/runs/search"),
    ("POST", "/ajax-api/3.0/mlflow/gateway/secrets/create"), ("GET", f"{API}/gateway-proxy"),
    ("POST", f"{API}/runs/search/../delete"), ("POST", "/x/ajax-api/2.0/mlflow/runs/search"), ("CONNECT", "/"),
]  # fmt: skip
REGISTERING = [
    ("DELETE", f"{API}/registered-models/delete"), ("POST", f"{API}/registered-models/alias"),
    ("POST", "/api/2.0/mlflow/registered-models/create"), ("PATCH", f"{API}/model-versions/update"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), READING)
def test_everybody_reads(method: str, path: str):
    for person in ("", VIEWER, OPERATOR):
        assert mlflow_server.refusal(RULES, method, path, person) == ""


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_a_change_is_an_operators(method: str, path: str):
    for person in ("", VIEWER):
        reason = mlflow_server.refusal(RULES, method, path, person)
        assert reason.startswith(f"{method} {path}: found {person or 'nobody known'}, expected one of"), reason
    assert mlflow_server.refusal(RULES, method, path, OPERATOR) == ""


@pytest.mark.parametrize(("method", "path"), REGISTERING)
def test_a_change_of_the_registry_is_a_promoters(method: str, path: str):
    for person in ("", VIEWER, OPERATOR):
        assert "expected one of the platform's" in mlflow_server.refusal(RULES, method, path, person)
    assert mlflow_server.refusal(RULES, method, path, PROMOTER) == ""


def test_where_nobody_is_named_everybody_may():
    for method, path in (*CHANGING, *REGISTERING):
        assert mlflow_server.refusal(Access(None, HEADER), method, path, VIEWER) == ""


def test_the_platforms_password_is_no_token_of_a_person(tmp_path: Path):
    """Whoever comes through a proxy is never taken for the platform, also where it sends no name, or two."""
    (tmp_path / "token").write_text(TOKEN)
    rules = Access(tmp_path / "token", HEADER, RULES.operators, RULES.promoters)
    password = credentials.password_of_platform(tmp_path / "token")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    guarded = TestClient(mlflow_server.guarded(app, rules))
    delete = f"{API}/experiments/delete"
    assert guarded.post(delete, headers={"Authorization": f"Bearer {password}"}).status_code == 200
    assert guarded.post(delete, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 403
    names = [("Authorization", f"Bearer {TOKEN}"), (HEADER, OPERATOR), (HEADER, VIEWER)]
    assert guarded.post(delete, headers=names).status_code == 400
    assert guarded.post(delete).status_code == 401 and guarded.get("/health").status_code == 200
    (tmp_path / "token").write_text(f"another-{TOKEN}")
    assert guarded.post(delete, headers={"Authorization": f"Bearer {password}"}).status_code == 401, "rotated"


def test_without_a_token_there_are_no_roles_and_no_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SLIPWAY_PLATFORM", raising=False)
    monkeypatch.delenv(access.TOKEN, raising=False)
    with pytest.raises(SystemExit, match="SLIPWAY_TOKEN_FILE: found none, expected a file"):
        mlflow_server.serve()


@dataclass(frozen=True)
class RunningMlflow:
    """A real server, and what it was started with."""

    address: str
    token: Path

    def send(self, person: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
        """What it answers to a person, as oauth2-proxy asks for them."""
        login = base64.b64encode(f"{person}:{TOKEN}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", HEADER: person, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return self.answer(urllib.request.Request(f"{self.address}{path}", data, headers, method=method))

    def answer(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    @property
    def is_up(self) -> bool:
        return self.answer(urllib.request.Request(f"{self.address}/health"))[0] == 200


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMlflow]:
    folder = tmp_path_factory.mktemp("mlflow")
    (folder / "token").write_text(TOKEN)
    people = {"user_header": HEADER, "operators": [OPERATOR], "promoters": [PROMOTER]}
    document = {**settings.settings(folder / "durable", folder / "nvme"), **people}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--host=127.0.0.1", f"--port={port}", "--workers=1", f"--backend-store-uri=sqlite:///{folder}/mlflow.db"]
    environ = {
        **os.environ, "SLIPWAY_PLATFORM": str(settings.write(folder / "platform.yaml", document)),
        access.TOKEN: str(folder / "token"), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }  # fmt: skip
    command = [sys.executable, "-m", "slipway.resources.pages.mlflow_server", *options, "--no-serve-artifacts"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
    try:
        server = RunningMlflow(f"http://127.0.0.1:{port}", folder / "token")
        until(lambda: server.is_up or process.poll() is not None, f"MLflow to answer: see {folder / 'log'}", 240)
        assert process.poll() is None, (folder / "log").read_text()
        yield server
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.nightly
def test_a_viewer_of_a_real_mlflow_deletes_nothing(mlflow: RunningMlflow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(BEARER, "")  # set by the resource, and taken back after the test
    tracking = Tracking(uri=mlflow.address, token_file=str(mlflow.token))
    client = tracking.client()
    experiment = client.create_experiment("tiny")
    client.create_registered_model("tiny")
    run = client.create_run(experiment)
    client.log_metric(run.info.run_id, "loss", 1.0)

    searched = mlflow.send(VIEWER, "POST", f"{API}/runs/search", {"experiment_ids": [experiment]})
    assert searched[0] == 200 and run.info.run_id in searched[1]
    assert mlflow.send(VIEWER, "GET", f"{API}/registered-models/get?name=tiny")[0] == 200
    delete, unregister = (f"{API}/experiments/delete", {"experiment_id": experiment}), {"name": "tiny"}
    status, body = mlflow.send(VIEWER, "POST", *delete)
    assert status == 403 and json.loads(body)["error_code"] == "PERMISSION_DENIED" and VIEWER in body
    for person in (VIEWER, OPERATOR):
        assert mlflow.send(person, "DELETE", f"{API}/registered-models/delete", unregister)[0] == 403
    assert client.get_experiment(experiment).lifecycle_stage == "active"
    assert [model.name for model in client.search_registered_models()] == ["tiny"]

    assert mlflow.send(OPERATOR, "POST", *delete)[0] == 200
    assert client.get_experiment(experiment).lifecycle_stage == "deleted"
    assert mlflow.send(PROMOTER, "DELETE", f"{API}/registered-models/delete", unregister)[0] == 200
    assert client.search_registered_models() == []
    nobody = urllib.request.Request(f"{mlflow.address}{API}/experiments/search", b"{}", method="POST")
    assert mlflow.answer(nobody)[0] == 401, "no token, no page"


@pytest.mark.nightly
def test_every_request_of_this_mlflow_that_changes_something_is_known(mlflow: RunningMlflow):
    """What a viewer may send besides GET is the list below, of all that this version's server takes."""
    listing = (
        "import json; from mlflow.server import app; from mlflow.server.fastapi_app import app as fast\n"
        "found = [[m, r.rule] for r in app.url_map.iter_rules() for m in r.methods]\n"
        "found += [[m.upper(), path] for path, each in fast.openapi()['paths'].items() for m in each]\n"
        "print(json.dumps(found))"
    )
    listed = json.loads(subprocess.check_output([sys.executable, "-W", "ignore", "-c", listing], text=True))
    routes = {(method, path) for method, path in listed if method not in mlflow_server.READING}
    assert len(routes) > 150
    read_paths = {path.replace("/ajax-api/", "/api/") for method, path in routes if mlflow_server.reads(method, path)}
    assert read_paths == {f"/api/{path}" for path in (
        "2.0/mlflow/artifacts/presigned-download-url", "2.0/mlflow/experiments/search",
        "2.0/mlflow/experiments/search-datasets", "2.0/mlflow/logged-models/search",
        "2.0/mlflow/registered-models/get-latest-versions", "2.0/mlflow/runs/search", "3.0/jobs/search",
        "3.0/mlflow/datasets/search", "3.0/mlflow/issues/search", "3.0/mlflow/prompt-optimization/jobs/search",
        "3.0/mlflow/traces/batchGetInfos", "3.0/mlflow/traces/calculate-filter-correlation",
        "3.0/mlflow/traces/metrics", "3.0/mlflow/traces/search", "3.0/mlflow/ui-telemetry",
    )} | {"/graphql"}  # fmt: skip

"""A webserver of ours on a real port, over one job and one asset, behind a proxy that names people."""

import base64
import contextlib
import dataclasses
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import uvicorn
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget

from slipway.resources import access
from slipway.resources.pages.webserver import SlipwayWebserver
from tests.conftest import until
from tests.drills.graphql import LAUNCH
from tests.kubernetes import settings

TOKEN = "0123456789abcdef-the-token"
HEADER = "X-Forwarded-Email"
PEOPLE = {"user_header": HEADER, "operators": ["oda@x.example", "åke@x.example"], "promoters": ["pia@x.example"]}
TERMINATE = "mutation T($run: String!) { terminateRun(runId: $run) { __typename } }"
LOCATION = {"repositoryLocationName": "place", "repositoryName": "__repository__"}
CODE = """\
import dagster as dg

@dg.op
def work():
    pass

@dg.job
def a_job():
    work()

@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["one"]))
def made():
    pass

defs = dg.Definitions(jobs=[a_job], assets=[made])
"""


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclasses.dataclass(frozen=True)
class Served:
    """The webserver on a port, over one job and one asset."""

    port: int
    instance: dg.DagsterInstance

    def ask(self, path: str, body: object = None, method: str | None = None, **headers: str) -> Answer:
        """One request; a header's underlines are dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read().decode())

    def click(self, person: str, query: str, variables: Mapping[str, Any], **headers: str) -> Answer:
        """What the UI sends for a person whom the proxy has let in."""
        named = {HEADER: person} if person else {}
        body = {"query": query, "variables": variables}
        return self.ask("/graphql", body, Authorization=basic(), **named, **headers)

    def mutate(self, person: str, query: str, **variables: Any) -> Mapping[str, Any]:
        """A click that is let through; what it gives."""
        answer = self.click(person, query, variables)
        assert answer.status == 200 and json.loads(answer.text)["data"], answer
        [result] = json.loads(answer.text)["data"].values()
        return dict(result)

    def launch(self, person: str, tags: Mapping[str, str]) -> Mapping[str, Any]:
        return self.mutate(person, LAUNCH, params=launching(tags))

    def tags(self, run: str) -> Mapping[str, str]:
        run_record = self.instance.get_run_by_id(run)
        assert run_record is not None
        return run_record.tags


def launching(tags: Mapping[str, str]) -> Mapping[str, Any]:
    """What the launchpad sends."""
    typed = [{"key": name, "value": value} for name, value in tags.items()]
    return {
        "selector": {**LOCATION, "jobName": "a_job"},
        "runConfigData": {},
        "executionMetadata": {"tags": typed},
    }


def basic(token: str = TOKEN) -> str:
    return "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    (folder / "place.py").write_text(CODE)
    coordinator = {"module": "slipway.resources.run_coordinator", "class": "AttributingRunCoordinator"}
    origin = LoadableTargetOrigin(python_file=str(folder / "place.py"), working_directory=str(folder))
    target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(origin, location_name="place"))
    with (
        dg.instance_for_test(overrides={"run_coordinator": coordinator}, temp_dir=str(folder)) as instance,
        WorkspaceProcessContext(instance, target) as context,
    ):
        app = SlipwayWebserver(context).create_asgi_app()
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until(lambda: server.started, "the webserver")
            yield Served(server.servers[0].sockets[0].getsockname()[1], instance)
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def guarded_by(token_file: Path, folder: Path) -> Iterator[Served]:
    """A cluster's webserver behind a proxy: with a token, an operator and a promoter."""
    token_file.write_text(f"{TOKEN}\n")
    (folder / "durable").mkdir()
    document = {**settings.settings(folder / "durable", folder / "nvme"), **PEOPLE}
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SLIPWAY_PLATFORM", str(settings.write(folder / "platform.yaml", document)))
        environ.setenv(access.TOKEN, str(token_file))
        with served(folder) as server:
            yield server

"""The webserver's door: a real server on a real port, asked as browsers, proxies and strangers ask it."""

import asyncio
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
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from resources import access
from resources.mlflow import identity
from resources.mlflow.identity import CANCELLED_TAG, USER_TAG
from resources.pages.webserver import SlipwayWebserver
from tests.conftest import until
from tests.drills.graphql import LAUNCH, LAUNCH_AGAIN
from tests.kubernetes import settings

TOKEN = "0123456789abcdef-the-token"
HEADER = "X-Forwarded-Email"
PEOPLE = {"user_header": HEADER, "operators": ["oda@x.example"], "promoters": ["pia@x.example"]}
PAGES = ("/", "/graphql?query={__typename}", "/slipway", "/slipway/trainings/x/live", "/logs/a/b", "/download_debug/x")
TERMINATE = "mutation T($run: String!) { terminateRun(runId: $run) { __typename } }"
BACKFILL = """mutation B($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""
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

    def mutate(self, person: str, query: str, **variables: Any) -> Mapping[str, Any]:
        """A click of a person whom the proxy has let in; what it gives."""
        headers = {HEADER: person} if person else {}
        answer = self.ask("/graphql", {"query": query, "variables": variables}, Authorization=basic(), **headers)
        assert answer.status == 200, answer
        [given] = json.loads(answer.text)["data"].values()
        return dict(given)

    def launch(self, person: str, tags: Mapping[str, str]) -> Mapping[str, Any]:
        typed = [{"key": name, "value": value} for name, value in tags.items()]
        selector = {**LOCATION, "jobName": "a_job"}
        params = {"selector": selector, "runConfigData": {}, "executionMetadata": {"tags": typed}}
        return self.mutate(person, LAUNCH, params=params)

    def tags(self, run: str) -> Mapping[str, str]:
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found.tags


def basic(token: str = TOKEN) -> str:
    return "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    (folder / "place.py").write_text(CODE)
    coordinator = {"module": "resources.run_coordinator", "class": "AttributingRunCoordinator"}
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


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secrets") / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, token_file: Path) -> Iterator[Served]:
    """A cluster's webserver behind a proxy: with a token, an operator and a promoter."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "durable").mkdir()
    document = {**settings.settings(folder / "durable", folder / "nvme"), **PEOPLE}
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SLIPWAY_PLATFORM", str(settings.write(folder / "platform.yaml", document)))
        environ.setenv(access.TOKEN, str(token_file))
        with served(folder) as found:
            yield found


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_shown_without_the_token(guarded: Served, path: str):
    for given in ({}, {"Authorization": basic("0123456789abcdef-another")}, {HEADER: "oda@x.example"}):
        answer = guarded.ask(path, **given)
        assert (answer.status, answer.text) == (401, "found no token, or another one; expected Slipway's\n")
        assert answer.headers["www-authenticate"].startswith("Basic "), "a browser asks for it"


def test_a_probe_asks_without_the_token_whether_the_webserver_answers(guarded: Served):
    answer = guarded.ask("/slipway/live")
    assert (answer.status, json.loads(answer.text)) == (200, {"live": True})


def test_the_health_of_the_platform_names_what_is_wrong(guarded: Served):
    """Beside this webserver no daemon runs."""
    answer = guarded.ask("/slipway/health", Authorization=basic())
    problems = json.loads(answer.text)["problems"]
    assert answer.status == 503 and problems["daemon"] == "it has never given a sign of life; start it"
    assert guarded.ask("/slipway/health").status == 401


def test_the_token_opens_every_page_as_a_browser_and_as_a_program_send_it(guarded: Served):
    for carried in (basic(), f"Bearer {TOKEN}"):
        assert [guarded.ask(path, Authorization=carried).status for path in PAGES[:3]] == [200, 200, 200]
    assert guarded.ask("/server_info").status == 200, "probes have no token"


@pytest.mark.parametrize("carried", ["", "Basic", "Basic ===", "Basic \xff", "Bearer ", "Digest x", f"Token {TOKEN}"])
def test_what_carries_no_token_is_refused_whatever_it_looks_like(guarded: Served, carried: str):
    assert guarded.ask("/slipway", Authorization=carried).status == 401


def test_a_socket_needs_the_token_too(guarded: Served):
    async def opened(**headers: str) -> str:
        where = f"ws://127.0.0.1:{guarded.port}/graphql"
        async with connect(where, subprotocols=["graphql-ws"], additional_headers=headers) as socket:  # type: ignore[list-item]
            return str(socket.subprotocol)

    with pytest.raises(InvalidStatus, match="403"):
        asyncio.run(opened())
    assert asyncio.run(opened(Authorization=basic())) == "graphql-ws"


def test_another_sites_page_may_open_a_page_and_send_nothing(guarded: Served):
    foreign = {"Sec_Fetch_Site": "cross-site", "Authorization": basic()}
    assert guarded.ask("/graphql?query={__typename}", Sec_Fetch_Mode="no-cors", **foreign).status == 403
    form = guarded.ask("/graphql?query={__typename}", {}, "POST", Sec_Fetch_Mode="navigate", **foreign)
    assert form.status == 403
    assert guarded.ask("/slipway", Sec_Fetch_Mode="navigate", **foreign).status == 200


@pytest.mark.parametrize("person", ["", "vic@x.example"])
def test_a_viewer_launches_and_ends_nothing(guarded: Served, person: str):
    running = guarded.launch("oda@x.example", {})["run"]["runId"]
    assert guarded.launch(person, {})["__typename"] == "UnauthorizedError"
    guarded.mutate(person, TERMINATE, run=running)
    waiting = guarded.instance.get_run_by_id(running)
    assert waiting is not None and waiting.status is dg.DagsterRunStatus.QUEUED and CANCELLED_TAG not in waiting.tags
    again = {"parentRunId": running, "strategy": "ALL_STEPS"}
    assert guarded.mutate(person, LAUNCH_AGAIN, params=again)["__typename"] == "UnauthorizedError"
    reported = guarded.ask(
        "/report_asset_materialization/made", {"partition": "one"}, Authorization=basic(), **{HEADER: person}
    )
    assert reported.status == 401


@pytest.mark.parametrize("person", ["oda@x.example", "pia@x.example"])
def test_a_run_is_of_the_person_whom_the_proxy_named_and_so_is_its_end(guarded: Served, person: str):
    run = guarded.launch(person, {USER_TAG: "ann", CANCELLED_TAG: "ann"})["run"]["runId"]
    assert (guarded.tags(run)[USER_TAG], guarded.tags(run)[CANCELLED_TAG]) == (person, "")
    assert guarded.mutate("oda@x.example", TERMINATE, run=run)["__typename"] == "TerminateRunSuccess"
    assert identity.of_cancellation(guarded.tags(run), "a sensor") == "oda@x.example"


def test_a_backfill_is_of_the_person_whom_the_proxy_named_whatever_was_typed(guarded: Served):
    typed = [{"key": USER_TAG, "value": "pia@x.example"}]
    params = {"assetSelection": [{"path": ["made"]}], "partitionNames": ["one"], "tags": typed}
    made = guarded.mutate("oda@x.example", BACKFILL, params=params)
    assert made["__typename"] == "LaunchBackfillSuccess", made
    found = guarded.instance.get_backfill(made["backfillId"])
    assert found is not None and found.tags[USER_TAG] == "oda@x.example"


def test_a_changed_token_holds_at_once_and_an_unreadable_one_opens_nothing(guarded: Served, token_file: Path):
    other = "fedcba9876543210-the-next"
    token_file.write_text(other)
    try:
        assert guarded.ask("/slipway", Authorization=basic()).status == 401
        assert guarded.ask("/slipway", Authorization=basic(other)).status == 200
        token_file.write_text("short")
        assert guarded.ask("/slipway", Authorization=basic("short")).status == 503
    finally:
        token_file.write_text(TOKEN)


def test_without_rules_everybody_who_reaches_the_webserver_operates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    for variable in ("SLIPWAY_PLATFORM", access.TOKEN):
        monkeypatch.delenv(variable, raising=False)
    with served(tmp_path) as found:
        assert found.ask("/slipway").status == 200
        assert found.launch("", {})["__typename"] == "LaunchRunSuccess"
        assert found.ask("/graphql?query={__typename}", Sec_Fetch_Site="cross-site").status == 403


def test_a_token_that_cannot_be_used_is_refused_before_anything_is_served(tmp_path: Path):
    missing = tmp_path / "absent"
    with pytest.raises(ValueError, match=f"{missing}: found 'No such file or directory', expected a file"):
        access.here({access.TOKEN: str(missing)})
    missing.write_text("guessed")
    with pytest.raises(ValueError, match="found a token of 7 characters, expected 16 or more"):
        access.here({access.TOKEN: str(missing)})

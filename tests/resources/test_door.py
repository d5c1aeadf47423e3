"""The webserver's door: a real server on a real port, asked as browsers, proxies and strangers ask it."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import cancel_backfill_runs_and_cancellation_complete
from dagster._core.storage.tags import BACKFILL_ID_TAG
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from slipway.resources import access, identity
from slipway.resources.identity import CANCELLED_TAG, USER_TAG
from tests.kubernetes import settings
from tests.resources.served import HEADER, PEOPLE, TERMINATE, TOKEN, Served, basic, guarded_by, served

PAGES = ("/", "/graphql?query={__typename}", "/slipway", "/slipway/trainings/x/live", "/logs/a/b", "/download_debug/x")
CANCELS = (
    "mutation C($backfill: String!) { cancelPartitionBackfill(backfillId: $backfill) { __typename } }",
    'mutation { cancelPartitionBackfill(backfillId: "ID") { __typename } }',
)
BACKFILL = """mutation B($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets") / "token"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, token_file: Path) -> Iterator[Served]:
    with guarded_by(token_file, tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_shown_without_the_token(guarded: Served, path: str):
    for headers in ({}, {"Authorization": basic("0123456789abcdef-another")}, {HEADER: "oda@x.example"}):
        answer = guarded.ask(path, **headers)
        assert (answer.status, answer.text) == (401, "found no token, or another one; expected Slipway's\n")
        assert answer.headers["www-authenticate"].startswith("Basic "), "a browser asks for it"


def test_a_probe_asks_without_the_token_whether_the_webserver_answers(guarded: Served):
    answer = guarded.ask("/slipway/live")
    assert (answer.status, json.loads(answer.text)) == (200, {"live": True})


def test_the_health_of_the_platform_names_what_is_wrong(guarded: Served):
    """Beside this webserver no daemon runs."""
    answer = guarded.ask("/slipway/health", Authorization=basic())
    problems = json.loads(answer.text)["problems"]
    assert answer.status == 503 and problems["daemon"] == "it has never sent a heartbeat; start it"
    assert guarded.ask("/slipway/health").status == 401


def test_the_token_opens_every_page_as_a_browser_and_as_a_program_send_it(guarded: Served):
    for authorization in (basic(), f"Bearer {TOKEN}"):
        assert [guarded.ask(path, Authorization=authorization).status for path in PAGES[:3]] == [200, 200, 200]
    assert guarded.ask("/server_info").status == 200, "probes have no token"


@pytest.mark.parametrize(
    "authorization", ["", "Basic", "Basic ===", "Basic \xff", "Bearer ", "Digest x", f"Token {TOKEN}"]
)
def test_what_carries_no_token_is_refused_whatever_it_looks_like(guarded: Served, authorization: str):
    assert guarded.ask("/slipway", Authorization=authorization).status == 401


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


@pytest.mark.parametrize(
    "path", ["//graphql", "/GRAPHQL", "/%67raphql", "/slipway/../graphql", "/server_info/../graphql"]
)
@pytest.mark.parametrize("door", ["/slipway", "/server_info", "/slipway/live"])
def test_no_way_of_writing_a_path_opens_the_door(guarded: Served, path: str, door: str):
    for written in (f"{path}?query={{__typename}}", f"{door}/..{path}", f"{door}/%2e%2e{path}", f"{door};{path}"):
        assert guarded.ask(written).status == 401, written


@pytest.mark.parametrize(
    "path",
    [
        "/slipway/trainings/..%2f..%2fsecret",
        "/slipway/trainings/%2e%2e/profiles/token",
        "/slipway/trainings/x/profiles/..%2f..%2f..%2fplatform.yaml",
        "/slipway/sweeps/..%2f..",
        "/slipway/datasets/%2e%2e%5csecret",
        "/slipway/datasets/%00",
        "/logs/..%2f..%2f..%2fplatform/yaml",
    ],
)
def test_no_page_reads_beside_its_folder(guarded: Served, path: str):
    answer = guarded.ask(path, Authorization=basic())
    assert "slipway: platform/1" not in answer.text and "root:" not in answer.text and TOKEN not in answer.text
    is_the_uis = answer.text.startswith("<!DOCTYPE html>") or "install nbconvert" in answer.text
    assert is_the_uis or answer.status in (400, 404, 500), answer


@pytest.mark.parametrize("person", ["oda@x.example", "pia@x.example"])
def test_a_run_is_of_the_person_whom_the_proxy_named_and_so_is_its_end(guarded: Served, person: str):
    run = guarded.launch(person, {USER_TAG: "ann", CANCELLED_TAG: "ann"})["run"]["runId"]
    assert (guarded.tags(run)[USER_TAG], guarded.tags(run)[CANCELLED_TAG]) == (person, "")
    assert guarded.mutate("oda@x.example", TERMINATE, run=run)["__typename"] == "TerminateRunSuccess"
    assert identity.of_cancellation(guarded.tags(run), "a sensor") == "oda@x.example"


def test_a_name_that_is_not_ascii_is_recorded_as_it_is_written(guarded: Served):
    """Of operators too: Åke, whom the settings name, is one."""
    sent = "åke@x.example".encode().decode("latin-1")  # as Python's client sends UTF-8
    run = guarded.launch(sent, {})["run"]["runId"]
    assert guarded.tags(run)[USER_TAG] == "åke@x.example"


@pytest.mark.parametrize("name", ["oda\tx", "a" * 257])
def test_what_is_no_name_of_a_person_opens_nothing(guarded: Served, name: str):
    for path in ("/slipway", "/graphql?query={__typename}"):
        answer = guarded.ask(path, Authorization=basic(), **{HEADER: name})
        assert (answer.status, answer.text[: len(HEADER)]) == (400, HEADER), answer


def test_a_backfill_is_of_the_person_whom_the_proxy_named_whatever_was_typed(guarded: Served):
    typed = [{"key": USER_TAG, "value": "pia@x.example"}]
    params = {"assetSelection": [{"path": ["made"]}], "partitionNames": ["one"], "tags": typed}
    launched = guarded.mutate("oda@x.example", BACKFILL, params=params)
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    backfill = guarded.instance.get_backfill(launched["backfillId"])
    assert backfill is not None and backfill.tags[USER_TAG] == "oda@x.example"


@pytest.mark.parametrize("document", CANCELS)
def test_the_runs_of_a_backfill_are_ended_by_the_person_who_cancelled_it(guarded: Served, document: str):
    params = {"assetSelection": [{"path": ["made"]}], "partitionNames": ["one"]}
    backfill = guarded.mutate("oda@x.example", BACKFILL, params=params)["backfillId"]
    run = guarded.launch("oda@x.example", {BACKFILL_ID_TAG: backfill})["run"]["runId"]
    answer = guarded.mutate("pia@x.example", document.replace("ID", backfill), backfill=backfill)
    assert answer["__typename"] == "CancelBackfillSuccess", answer
    assert not cancel_backfill_runs_and_cancellation_complete(guarded.instance, backfill, logging.getLogger("daemon"))
    ended = guarded.instance.get_run_by_id(run)
    assert ended is not None and ended.status is dg.DagsterRunStatus.CANCELED
    assert identity.of_cancellation(guarded.tags(run), "a sensor") == "pia@x.example"


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
    with served(tmp_path) as server:
        assert server.ask("/slipway").status == 200
        assert server.launch("", {})["__typename"] == "LaunchRunSuccess"
        assert server.ask("/graphql?query={__typename}", Sec_Fetch_Site="cross-site").status == 403


def test_a_token_that_cannot_be_used_is_refused_before_anything_is_served(tmp_path: Path):
    missing = tmp_path / "absent"
    with pytest.raises(ValueError, match=f"{missing}: found 'No such file or directory', expected a file"):
        access.of_environment({access.TOKEN: str(missing)})
    missing.write_text("guessed")
    with pytest.raises(ValueError, match="found a token of 7 characters, expected 16 or more"):
        access.of_environment({access.TOKEN: str(missing)})


def test_names_of_people_are_not_believed_where_no_token_says_who_gives_them(tmp_path: Path):
    file = settings.write(tmp_path / "platform.yaml", {**settings.settings(), **PEOPLE})
    with pytest.raises(ValueError, match="user_header: found 'X-Forwarded-Email' without SLIPWAY_TOKEN_FILE, expected"):
        access.of_environment({"SLIPWAY_PLATFORM": str(file)})

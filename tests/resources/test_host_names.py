"""Host on the webserver: a page of another site whose name leads here (DNS rebinding) sees and changes nothing."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from slipway.resources import access
from slipway.trainer.base import host_names
from tests.resources.served import Served, served

PATHS = ("/", "/graphql?query={__typename}", "/slipway", "/slipway/health", "/slipway/trainings/x/live", "/logs/a/b")
LAUNCH = {"query": "mutation { startSensor(sensorSelector: {}) { __typename } }"}
SAME_SITE = {"Sec_Fetch_Site": "same-origin", "Origin": "http://evil.example:7310"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The webserver of one machine, without a token, which has one further name."""
    folder = tmp_path_factory.mktemp("opened")
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SLIPWAY_HOME", str(folder / "home"))
        environ.setenv(host_names.VARIABLE, "ui.example")
        for variable in ("SLIPWAY_PLATFORM", access.TOKEN):
            environ.delenv(variable, raising=False)
        with served(folder) as server:
            yield server


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:7310", "0.0.0.0:3000", "10.9.8.7"])
def test_nothing_is_shown_under_a_name_that_is_none_of_this_servers(opened: Served, path: str, host: str):
    answer = opened.ask(path, Host=host, **SAME_SITE)
    assert answer.status == 421 and f"Host: found '{host}', expected localhost" in answer.text
    assert "SLIPWAY_HOSTS" in answer.text, "it says what allows the name"


def test_nothing_is_changed_under_another_name(opened: Served):
    assert opened.ask("/graphql", LAUNCH, Host="evil.example:7310", **SAME_SITE).status == 421


@pytest.mark.parametrize(
    "host", ["localhost:{}", "127.0.0.1:{}", "[::1]:{}", "localhost", "ui.example", "UI.example:80"]
)
def test_it_answers_under_this_machines_names_and_those_in_the_settings(opened: Served, host: str):
    answer = opened.ask("/graphql?query={__typename}", Host=host.format(opened.port), Sec_Fetch_Site="same-origin")
    assert (answer.status, json.loads(answer.text)["data"]["__typename"]) == (200, "Query"), answer


def test_no_socket_of_graphql_opens_under_another_name(opened: Served):
    async def socket(host: str) -> str:
        to = {"host": "127.0.0.1", "port": opened.port, "subprotocols": ["graphql-ws"], "proxy": None}
        try:
            async with connect(f"ws://{host}:{opened.port}/graphql", **to):  # type: ignore[arg-type]
                return "open"
        except InvalidStatus as error:
            return str(error.response.status_code)

    assert [asyncio.run(socket(host)) for host in ("evil.example", "localhost", "ui.example")] == [
        "403",
        "open",
        "open",
    ]


def test_a_probe_is_answered_under_any_name(opened: Served):
    assert [opened.ask(path, Host="10.244.0.7:3000").status for path in ("/slipway/live", "/server_info")] == [200, 200]


def test_a_setting_that_is_no_name_is_refused_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(host_names.VARIABLE, "https://ui.example")
    with pytest.raises(ValueError, match=r"SLIPWAY_HOSTS: found .*, expected names"), served(tmp_path):
        pass

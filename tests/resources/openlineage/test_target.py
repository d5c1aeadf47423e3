"""Target: events reach a file or a server; a target that is away differs from an event that it refuses."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.openlineage.target import OpenLineage, of_address

EVENT = {"eventType": "START", "run": {"runId": "1"}}


class Catalog(http.server.ThreadingHTTPServer):
    """A server that keeps the events that it is given, and answers as a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posts)
        self.events: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answer = 201

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api/v1/lineage"


class Posts(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Catalog) and self.path == "/api/v1/lineage"
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.keys.append(self.headers.get("Authorization"))
        if server.answer == 201:
            server.events.append(event)
        self.send_response(server.answer)
        self.end_headers()
        self.wfile.write(b"told so")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_server_gets_each_event_as_json(catalog: Catalog):
    OpenLineage(url=catalog.url).send(EVENT)
    assert catalog.events == [EVENT] and catalog.keys == [None]


def test_the_key_of_a_server_is_read_from_its_file(catalog: Catalog, tmp_path: Path):
    (tmp_path / "key").write_text("abc\n")
    OpenLineage(url=catalog.url, key_file=str(tmp_path / "key")).send(EVENT)
    assert catalog.keys == ["Bearer abc"]


@pytest.mark.parametrize("answer", [500, 503, 429])
def test_a_server_that_cannot_take_an_event_now_is_away(catalog: Catalog, answer: int):
    catalog.answer = answer
    with pytest.raises(Unavailable, match=str(answer)):
        OpenLineage(url=catalog.url).send(EVENT)


def test_a_server_that_refuses_an_event_says_why(catalog: Catalog):
    catalog.answer = 422
    with pytest.raises(ValueError, match=r"422 .* to an event: told so"):
        OpenLineage(url=catalog.url).send(EVENT)


def test_nobody_listening_is_away():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="refused"):
            OpenLineage(url=f"http://127.0.0.1:{nobody.getsockname()[1]}").send(EVENT)


def test_a_file_gets_an_event_a_line_after_one_that_was_left_torn(tmp_path: Path):
    path = tmp_path / "folder" / "events.jsonl"
    target = of_address(str(path))
    target.send(EVENT)
    with path.open("ab") as file:
        file.write(b'{"eventType": "RUN')
    target.send(EVENT)
    first, torn, last = path.read_text().splitlines()
    assert json.loads(first) == json.loads(last) == EVENT and torn == '{"eventType": "RUN'


def test_a_file_that_cannot_be_written_is_away(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable):
        of_address(str(tmp_path / "file" / "events.jsonl")).send(EVENT)


def test_an_address_without_a_scheme_is_a_file():
    assert of_address("http://catalog:5000/api/v1/lineage").url
    assert of_address("/var/lib/events.jsonl").file
    assert not of_address("").is_wanted

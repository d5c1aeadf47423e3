"""The client of a served model: whatever answers, it has a text or one clear error."""

import http.server
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from slipway.serving import client
from tests.fuzz.test_readers import bytes_like

pytestmark = pytest.mark.pure

EVENT = {"choices": [{"text": "hello"}], "usage": {"completion_tokens": 1}}
REFUSAL = {"error": {"message": "max_tokens: too many"}}


class Answers(http.server.ThreadingHTTPServer):
    """A server that answers what it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posts)
        self.status, self.body = 200, b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Posts(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Answers)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers() as serving:
        threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
        yield serving
        serving.shutdown()


def test_a_stream_is_read_until_it_is_done(server: Answers):
    server.body = b'data: {"choices": [{"text": "a"}]}\n\ndata: {"choices": [{"text": "b"}]}\n\ndata: [DONE]\n\n'
    assert list(client.stream(server.url, {})) == ["a", "b"]


def test_a_refusal_without_a_reason_is_named_as_such(server: Answers):
    server.status, server.body = 400, b'{"error": {"message": ""}}'
    with pytest.raises(client.NotAnswered, match=r"the server refuses the request and gives no reason$"):
        client.complete(server.url, {})
    server.status, server.body = 200, b'data: {"error": {"message": ""}}\n\n'
    with pytest.raises(client.NotAnswered, match=r"the server refuses the request and gives no reason$"):
        list(client.stream(server.url, {}))


def test_a_refusal_is_told_in_the_servers_words(server: Answers):
    server.status, server.body = 400, b'{"error": {"message": "max_tokens: too many"}}'
    with pytest.raises(client.NotAnswered, match=r"^max_tokens: too many$"):
        client.complete(server.url, {})


def test_a_page_of_a_proxy_in_between_is_told_with_its_status(server: Answers):
    server.status, server.body = 502, b"<html>Bad Gateway</html>" + b"x" * 100_000
    with pytest.raises(client.NotAnswered, match=r"the server answers 502 Bad Gateway: <html>") as refused:
        client.complete(server.url, {})
    assert len(str(refused.value)) < 400


def test_an_answer_that_is_no_json_is_told(server: Answers):
    server.body = b"<html>sign in</html>"
    with pytest.raises(client.NotAnswered, match="found an answer that is not JSON"):
        client.complete(server.url, {})


@pytest.mark.parametrize("value", [EVENT, REFUSAL], ids=["event", "refusal"])
@pytest.mark.parametrize("status", [200, 400])
def test_whatever_a_server_answers_there_is_a_text_or_a_clear_error(server: Answers, value: object, status: int):
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(bytes_like(value))
    def answered(data: bytes) -> None:
        server.status = status
        for body in (data, b"data: " + data.replace(b"\n", b"") + b"\n\n"):
            server.body = body
            for ask in (client.stream, lambda url, document: [client.complete(url, document)]):
                try:
                    list(ask(server.url, {}))
                except client.NotAnswered as refused:
                    assert str(refused)

    answered()

"""Posting: what is away is told apart from what is refused, and a key stays between us and the server that wants it."""

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from slipway.resources import posting
from slipway.resources.errors import Unavailable

pytestmark = pytest.mark.pure

KEY = "PLANTED-0fd2"
HEADERS = {"Authorization": f"Bearer {KEY}"}


class Repeats(http.server.ThreadingHTTPServer):
    """A server that repeats what it was told in all that it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.requests: list[tuple[str, str, str | None]] = []
        """The method, the path and the key of each request."""
        self.answer, self.location, self.before = 200, "", ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server, key = self.server, self.headers.get("Authorization")
        assert isinstance(server, Repeats)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server.requests.append((self.command, self.path, key))
        self.send_response(server.answer, f"not with {key}")
        if server.location:
            self.send_header("Location", server.location)
        self.end_headers()
        self.wfile.write(f"{server.before}no right to come with {key}".encode())

    do_POST = do_GET = _answer  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Repeats]:
    with Repeats() as serving:
        threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
        yield serving
        serving.shutdown()


@pytest.mark.parametrize("answer", [401, 422, 301, 302, 307])
def test_what_a_server_refuses_is_told_without_the_key_that_it_repeats(server: Repeats, answer: int):
    server.answer = answer
    with pytest.raises(ValueError, match=f"it answered {answer} .* to an event") as refused:
        posting.post(server.url, b"{}", HEADERS, 5.0, "an event")
    assert KEY not in str(refused.value)
    assert server.requests == [("POST", "/", f"Bearer {KEY}")]


@pytest.mark.parametrize("answer", [408, 429, 500, 503])
def test_a_server_that_is_away_is_told_without_the_key_that_it_repeats(server: Repeats, answer: int):
    server.answer = answer
    with pytest.raises(Unavailable, match=f"it answered {answer}") as away:
        posting.post(server.url, b"{}", HEADERS, 5.0, "an event")
    assert KEY not in str(away.value)


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 308])
def test_a_redirection_takes_the_key_nowhere_and_is_no_success(server: Repeats, answer: int):
    with Repeats() as other:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        server.answer, server.location = answer, f"{other.url}/elsewhere"
        with pytest.raises(ValueError, match="set the address to which the server has moved"):
            posting.post(server.url, b"{}", HEADERS, 5.0, "an event")
        other.shutdown()
    assert other.requests == []


def test_no_part_of_a_key_is_told_where_what_a_server_says_is_cut(server: Repeats):
    server.answer = 400
    server.before = "x" * (posting.MESSAGE_LENGTH - len("no right to come with Bearer PLANT"))
    with pytest.raises(ValueError, match="it answered 400") as refused:
        posting.post(server.url, b"{}", HEADERS, 5.0, "an event")
    assert "PLANT" not in str(refused.value)


def test_a_server_that_speaks_no_http_is_away():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-something\r\n")

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(Unavailable):
            posting.post(f"http://127.0.0.1:{listening.getsockname()[1]}", b"{}", HEADERS, 5.0, "an event")

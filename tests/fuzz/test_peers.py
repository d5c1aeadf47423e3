"""Fuzzing of what peers answer: whatever comes, a node has bytes or a clear error, in bounded memory.

The answers go over a real connection, since the parser of HTTP is a part of what is tested.
"""

import io
import socket
import threading
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.trainer.objects import origin, peer
from slipway.trainer.objects.origin import Coming, Missing, Unreachable
from slipway.trainer.objects.peer import COMING, PeerOrigin

SAME_SERVER = [HealthCheck.function_scoped_fixture]
FEW = settings(max_examples=40, deadline=None, suppress_health_check=SAME_SERVER)
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=SAME_SERVER)
NAME = f"shards/{'0' * 64}.shard"
STATUSES = st.sampled_from(
    [
        "200 OK",
        "206 Partial",
        "301 Moved",
        "404 Not Found",
        "416 Range",
        "429 Many",
        "500 Error",
        "099",
        "x",
        "",
        "2000 x",
    ]
)
NUMBERS = st.sampled_from(["0", "5", "-1", "1e9", "9" * 5000, "\u0663", "", "0x10", "99999999999999999999"])
HEADERS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["Content-Length", COMING, "Content-Range", "Retry-After"]), NUMBERS),
        st.tuples(st.just("Transfer-Encoding"), st.sampled_from(["chunked", "gzip", ""])),
        st.tuples(
            st.just("Location"),
            st.sampled_from(["http://127.0.0.1:1/x", "file:///etc/passwd", "//", "\xff", "ftp://a"]),
        ),
        st.tuples(st.text(min_size=1, max_size=5), st.text(max_size=8)),
    ),
    max_size=4,
)
BODIES = st.one_of(
    st.binary(max_size=64), st.sampled_from([b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffff\r\nx", b"-1\r\nx", b"5;x"])
)
ANSWERS = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda status, headers, body: (
            (f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n").encode(
                errors="replace"
            )
            + body
        ),
        STATUSES,
        HEADERS,
        BODIES,
    ),
)


class Peer:
    """A server that answers every request with the same bytes, and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self.n_requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.n_requests += 1
                try:
                    connection.recv(65536)
                    connection.sendall(self.answer)
                except OSError:
                    pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    monkeypatch.setattr(peer, "PATIENCE_SECONDS", 0.0)  # each answer would be asked for again
    peer_server = Peer()
    yield peer_server
    peer_server.close()


def read(server: Peer, offset: int = 0) -> bytes:
    """All that a node gets from the peer; fails for any error but those that an origin may raise."""
    try:
        with PeerOrigin(server.url).open(NAME, offset) as stream:
            return stream.read()
    except (Missing, Unreachable) as error:
        assert NAME in str(error)
        return b""


def fuzzed(server: Peer, how: settings) -> None:
    @how
    @given(ANSWERS, st.sampled_from([0, 3]))
    def answered(answer: bytes, offset: int) -> None:
        server.answer = answer
        read(server, offset)

    answered()


def test_whatever_a_peer_answers_a_node_has_bytes_or_a_clear_error(server: Peer):
    fuzzed(server, FEW)


@pytest.mark.nightly
def test_whatever_a_peer_answers_a_node_has_bytes_or_a_clear_error_for_thousands(server: Peer):
    fuzzed(server, MANY)


def test_a_whole_answer_is_read(server: Peer):
    """The answers that are damaged above are whole before that."""
    server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    assert read(server) == b"hello"
    server.answer = f"HTTP/1.1 404 Not Found\r\n{COMING}: 12\r\n\r\n".encode()
    with pytest.raises(Coming) as coming:
        PeerOrigin(server.url).open(NAME)
    assert coming.value.bytes == 12


def test_a_count_too_long_to_be_one_is_no_count(server: Peer):
    server.answer = f"HTTP/1.1 404 Not Found\r\n{COMING}: {'9' * 5000}\r\n\r\n".encode()
    with pytest.raises(Missing):
        PeerOrigin(server.url).open(NAME)


def test_a_peer_sends_nobody_to_another_address(server: Peer):
    other_server = Peer()
    server.answer = f"HTTP/1.1 302 Found\r\nLocation: {other_server.url}/secret\r\nContent-Length: 0\r\n\r\n".encode()
    with pytest.raises(Unreachable, match="status 302"):
        PeerOrigin(server.url).open(NAME)
    assert other_server.n_requests == 0
    other_server.close()


def test_a_manifest_without_an_end_is_refused_in_bounded_memory():
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            assert size > 0, "a reader that asks for all of it would never end"
            return bytes(size)

    tracemalloc.start()
    with pytest.raises(Unreachable, match="a peer: found more than 8388608 bytes"):
        origin.small(Endless(), "a peer", 8 << 20)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20

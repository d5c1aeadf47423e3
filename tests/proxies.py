"""A recorder where a company's proxy would stand: it notes what comes to it, and refuses all of it."""

import contextlib
import http.server
import threading
from collections.abc import Iterator

NAMES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
EXCLUDED = ("no_proxy", "NO_PROXY")


class Recorder(http.server.ThreadingHTTPServer):
    """A proxy that answers 502."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.requests: list[str] = []
        """The first line of each request, and its headers."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Refusal(http.server.BaseHTTPRequestHandler):
    def _refuse(self) -> None:
        assert isinstance(self.server, Recorder)
        self.server.requests.append(f"{self.requestline}\n{self.headers}")
        self.send_response(502)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_CONNECT = _refuse  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def recorder() -> Iterator[Recorder]:
    """A recorder that listens."""
    with Recorder() as listening:
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield listening
        listening.shutdown()

"""Exporting: a read-only HTTP server for one text, /metrics, and for /live and /health. It imports no library.

Each request has a thread, and one text is made at a time, so only scrapes wait. An error in the making of the text
gives the answer 500 with its sentence, and the server goes on.

All processes have the same paths:

    GET /live     200 while the process answers: for a probe that ends hung processes
    GET /health   200 and {"problems": {}}; or 503 and the problems by subject: for people and alerts

A probe that ends processes must not use /health: a restart does not mend a tier that is away.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from slipway.trainer.base.exposition import CONTENT_TYPE

PLAIN = "text/plain; charset=utf-8"
LIVE = "/live"
HEALTH = "/health"
KIND = "application/json"


def server(
    host: str, port: int, text: Callable[[], str], problems: Callable[[], Mapping[str, str]] = dict
) -> ThreadingHTTPServer:
    """A server that is bound and not yet running; `port` 0 takes a free one. Raises OSError for a port in use.

    `problems` returns the problems of the exported subjects.
    """
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == LIVE:
                self._say(live())
            elif path == HEALTH:
                self._say(health(problems()))
            elif path == "/metrics":
                self._scrape()
            else:
                self._answer(404, f"{path}: found no such page, expected /metrics, /live or /health\n", PLAIN)

        def _say(self, answer: HealthAnswer) -> None:
            self._answer(answer.status, answer.body, KIND)

        def _scrape(self) -> None:
            try:
                with one_at_a_time:
                    body = text()
            except Exception as error:  # the next scrape may succeed
                self._answer(500, f"{error}\n", PLAIN)
            else:
                self._answer(200, body, CONTENT_TYPE)

        def _answer(self, code: int, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client has stopped waiting
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a line."""

    http_server = ThreadingHTTPServer((host, port), Handler)
    http_server.daemon_threads = True
    return http_server


@dataclass(frozen=True)
class HealthAnswer:
    """An answer over HTTP, as JSON."""

    status: int
    body: str


def live() -> HealthAnswer:
    """The answer to /live."""
    return HealthAnswer(200, json.dumps({"live": True}))


def health(problems: Mapping[str, str]) -> HealthAnswer:
    """The answer to /health; `problems` returns the problems by subject."""
    return HealthAnswer(503 if problems else 200, json.dumps({"problems": dict(problems)}, ensure_ascii=False))

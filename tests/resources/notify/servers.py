"""Servers that take messages: a webhook over HTTP, and mail over SMTP (RFC 5321, without TLS)."""

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Inbox:
    """What a server was sent."""

    port: int
    messages: list[Any] = field(default_factory=list)
    status: int = 200
    """What a webhook answers from now on."""

    @property
    def webhook(self) -> str:
        """The address as Apprise writes it; the path is a token."""
        return f"json://127.0.0.1:{self.port}/s3cr3t-token"

    @property
    def mailbox(self) -> str:
        return f"mailto://127.0.0.1:{self.port}?from=slipway@example.org&to=ada@example.org&mode=insecure"


@contextlib.contextmanager
def webhook(port: int = 0) -> Iterator[Inbox]:
    """A webhook on a free port, or on this one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if inbox.status == 200:
                inbox.messages.append(json.loads(body))
            self.send_response(inbox.status)
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        inbox = Inbox(server.server_address[1])
        with _serving(server):
            yield inbox


@contextlib.contextmanager
def mailbox() -> Iterator[Inbox]:
    """A server of mail on a free port."""

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 ready")
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].upper()
                if verb == "DATA":
                    self._say("354 go on")
                    inbox.messages.append("".join(iter(lambda: self.rfile.readline().decode(), ".\r\n")))
                self._say("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    return

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        inbox = Inbox(server.server_address[1])
        with _serving(server):
            yield inbox


@contextlib.contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()

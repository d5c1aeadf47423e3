"""A collector: a server that takes traces as OpenTelemetry's protocol has them, read by OpenTelemetry's own schema."""

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

IDS = ("traceId", "spanId", "parentSpanId")


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the requests that it is sent, and answers as a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posts)
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.answer = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[Span]:
        scopes = [
            scope
            for request in self.requests
            for resource_span in request.resource_spans
            for scope in resource_span.scope_spans
        ]
        return [span for scope in scopes for span in scope.spans]


class Posts(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Collector) and self.path == "/v1/traces"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if server.answer == 200:
            server.requests.append(json_format.ParseDict(_with_bytes(body), ExportTraceServiceRequest()))
        self.send_response(server.answer)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None: ...


@contextmanager
def listening() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def above(span: Span, spans: list[Span]) -> list[str]:
    """The names of the spans around this one, from the outermost to its own."""
    by_id = {exported_span.span_id: exported_span for exported_span in spans}
    path = [span]
    while path[0].parent_span_id:
        path.insert(0, by_id[path[0].parent_span_id])
    return [parent_span.name for parent_span in path]


def _with_bytes(value: Any) -> Any:
    """Ids as protobuf's own JSON has bytes: OTLP's JSON differs from it in them alone."""
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if isinstance(value, dict):
        return {
            name: base64.b64encode(bytes.fromhex(item)).decode() if name in IDS else _with_bytes(item)
            for name, item in value.items()
        }
    return value

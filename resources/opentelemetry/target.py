"""Target of traces, from OpenTelemetry's own variables, and sending to it: OTLP over HTTP, as JSON.

    OTEL_EXPORTER_OTLP_ENDPOINT           the address of a collector, such as http://collector:4318; /v1/traces is added
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT    the complete address, instead of the former
    OTEL_EXPORTER_OTLP_HEADERS            name=value,…, percent-encoded: a key, which is never shown
    OTEL_EXPORTER_OTLP_TIMEOUT            milliseconds for one request
    OTEL_EXPORTER_OTLP_PROTOCOL           http/json, or nothing
    OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED

HEADERS, TIMEOUT and PROTOCOL also have a form for traces only, with TRACES_, which overrides the general one
(https://opentelemetry.io/docs/specs/otel/protocol/exporter/). Only the standard library is needed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from slipway.resources import credentials, posting
from slipway.resources.opentelemetry.spans import TraceSpan, export_request
from slipway.trainer.record import spans

PREFIX = "OTEL_EXPORTER_OTLP_"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, 5.6.2)."""
AT_ONCE = 500
"""The maximum number of spans in one request."""


@dataclass(frozen=True)
class TraceTarget:
    """A receiver of traces."""

    url: str
    resource: Mapping[str, str]
    """The description of the sender."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = 10.0
    """How long one request may take."""

    def send(self, spans: Sequence[TraceSpan]) -> None:
        """Send spans. Raises Unavailable if the target is away, and ValueError if it rejects them."""
        for first in range(0, len(spans), AT_ONCE):
            body = json.dumps(export_request(spans[first : first + AT_ONCE], self.resource)).encode()
            posting.post(self.url, body, self.headers, self.seconds, "a trace")


def of(environ: Mapping[str, str]) -> TraceTarget | None:
    """The target that the environment names, or None. Raises ValueError for a bad setting."""
    if not spans.are_wanted(environ):
        return None
    spans.steps_apart(environ)
    protocol = _setting(environ, "PROTOCOL")
    if protocol not in ("", "http/json"):
        raise ValueError(f"{PREFIX}PROTOCOL: found {protocol!r}, expected http/json or nothing")
    milliseconds = _setting(environ, "TIMEOUT") or "10000"
    if not milliseconds.isdecimal() or int(milliseconds) == 0:
        raise ValueError(f"{PREFIX}TIMEOUT: found {milliseconds!r}, expected milliseconds, 1 or more")
    return TraceTarget(_url(environ), _resource(environ), _headers(environ), int(milliseconds) / 1e3)


def _url(environ: Mapping[str, str]) -> str:
    name = next(name for name in spans.ENDPOINTS if environ.get(name))
    if not environ[name].startswith(("http://", "https://")):
        raise ValueError(f"{name}: found {environ[name]!r}, expected an address such as http://collector:4318")
    return environ[name] if "TRACES" in name else f"{environ[name].rstrip('/')}/v1/traces"


def _setting(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"{PREFIX}TRACES_{name}") or environ.get(f"{PREFIX}{name}", "")


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    headers = _pairs(f"{PREFIX}HEADERS", _setting(environ, "HEADERS"))
    if not all(_HEADER.fullmatch(name) for name in headers):
        # The message does not show the name, which may be the part of a key after a comma.
        raise ValueError(f"{PREFIX}HEADERS: found a name that no header may have, expected name=value, percent-encoded")
    return {name: credentials.checked_header(value, f"{PREFIX}HEADERS") for name, value in headers.items()}


def _resource(environ: Mapping[str, str]) -> dict[str, str]:
    named = _pairs("OTEL_RESOURCE_ATTRIBUTES", environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    own = environ.get("OTEL_SERVICE_NAME") or named.get("service.name", "slipway")
    return {**named, "service.name": own}


def _pairs(variable: str, text: str) -> dict[str, str]:
    """The pairs of name=value,…; an error message does not repeat the text, since it may be a key."""
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    if any(not name or not equals for name, equals, _ in pairs):
        raise ValueError(f"{variable}: expected name=value pairs, separated by commas")
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}

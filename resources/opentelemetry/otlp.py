"""OTLP: spans in the JSON of OpenTelemetry's protocol, version 1 (https://opentelemetry.io/docs/specs/otlp/). Pure.

The names and types of the fields are those of `opentelemetry/proto/trace/v1/trace.proto`; ids are hexadecimal, and
nanoseconds are written as texts, as the protocol's JSON has them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.resources.opentelemetry.spans import TraceSpan

INTERNAL, ERROR = 1, 2
"""SPAN_KIND_INTERNAL; STATUS_CODE_ERROR."""


def request(spans: Sequence[TraceSpan], resource: Mapping[str, str]) -> dict[str, Any]:
    """An ExportTraceServiceRequest; `resource` says what sends it."""
    scope = {"scope": {"name": "slipway"}, "spans": [_span(each) for each in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}


def _span(span: TraceSpan) -> dict[str, Any]:
    return {
        "traceId": span.trace,
        "spanId": span.id,
        **({"parentSpanId": span.parent} if span.parent else {}),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(int(span.begun * 1e9)),
        "endTimeUnixNano": str(int(span.ended * 1e9)),
        "attributes": _attributes(span.attributes),
        **({"status": {"code": ERROR, "message": span.fault}} if span.fault else {}),
    }


def _attributes(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in known.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}

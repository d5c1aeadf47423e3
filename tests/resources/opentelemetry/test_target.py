"""Target: traces go where OpenTelemetry's variables say; a target that is away differs from spans that it refuses."""

import socket

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.opentelemetry import target
from slipway.resources.opentelemetry.spans import TraceSpan
from tests.resources.opentelemetry.collector import listening

SPAN = TraceSpan("ab" * 16, "cd" * 8, "ef" * 8, "step 7", 1.5, 2.25, {"slipway.step": 7, "nodes": ["a", "b"]}, "why")


def environ(address: str, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": address, **more}


def test_a_collector_reads_every_field_of_a_span():
    with listening() as collector:
        where = target.of(environ(collector.address, OTEL_SERVICE_NAME="lab", OTEL_RESOURCE_ATTRIBUTES="team=x%20y"))
        assert where is not None
        where.send([SPAN])
        [span], [request] = collector.spans, collector.requests
    assert (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) == (SPAN.trace, SPAN.id, SPAN.parent)
    assert (span.name, span.start_time_unix_nano, span.end_time_unix_nano) == ("step 7", 1500000000, 2250000000)
    assert (span.status.code, span.status.message) == (2, "why")
    assert (span.attributes[0].key, span.attributes[0].value.int_value) == ("slipway.step", 7)
    assert [value.string_value for value in span.attributes[1].value.array_value.values] == ["a", "b"]
    resource = {
        attribute.key: attribute.value.string_value for attribute in request.resource_spans[0].resource.attributes
    }
    assert resource == {"service.name": "lab", "team": "x y"}


def test_many_spans_go_in_several_requests():
    with listening() as collector:
        where = target.of(environ(collector.address))
        assert where is not None
        where.send([SPAN] * (target.AT_ONCE + 1))
        assert [len(export.resource_spans[0].scope_spans[0].spans) for export in collector.requests] == [
            target.AT_ONCE,
            1,
        ]


def test_a_key_is_sent_and_never_shown():
    with listening() as collector:
        where = target.of(environ(collector.address, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20secret"))
        assert where is not None and "secret" not in repr(where)
        where.send([SPAN])
        assert collector.headers[0]["authorization"] == "Bearer secret"


def test_a_collector_that_cannot_take_traces_now_is_away_and_one_that_refuses_them_says_so():
    with listening() as collector:
        where = target.of(environ(collector.address))
        assert where is not None
        for answer in (500, 503, 429):
            collector.answer = answer
            with pytest.raises(Unavailable, match=str(answer)):
                where.send([SPAN])
        collector.answer = 400
        with pytest.raises(ValueError, match=r"400 .* to a trace"):
            where.send([SPAN])


def test_nobody_listening_is_away():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = target.of(environ(f"http://127.0.0.1:{free.getsockname()[1]}"))
        assert where is not None
        with pytest.raises(Unavailable, match="refused"):
            where.send([SPAN])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "PROTOCOL: found 'grpc', expected http/json"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "TIMEOUT: found 'soon', expected milliseconds"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "secret"}, "HEADERS: expected name=value"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a,secret of b=c"}, "HEADERS: found a name that no header may have"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "\x80=a"}, "HEADERS: found a name that no header may have"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "collector:4318"}, "found 'collector:4318', expected an address"),
        ({"SLIPWAY_TRACE_STEPS": "0"}, "SLIPWAY_TRACE_STEPS: found '0', expected"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_is_expected(more: dict[str, str], problem: str):
    with pytest.raises(ValueError, match=problem) as raised:
        target.of(environ("http://127.0.0.1:1", **more))
    assert "secret" not in str(raised.value)


def test_the_address_for_traces_is_taken_whole_and_the_general_one_gets_their_path():
    of_traces = target.of({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://there/otlp"})
    general = target.of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there/"})
    assert of_traces and general and (of_traces.url, general.url) == ("http://there/otlp", "http://there/v1/traces")
    assert target.of({}) is None and target.of(environ("http://there", OTEL_SDK_DISABLED="true")) is None

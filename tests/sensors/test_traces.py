"""Traces: a collector gets one trace of a training, once, from the asset's run to the parts of a rank's step."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from slipway.assets import keys
from slipway.trainer.record import files
from tests.resources.opentelemetry.collector import Collector, above, listening
from tests.sensors.platform import TINY, Platform

EVERY = 10


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with listening() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.address)
        monkeypatch.setenv("SLIPWAY_TRACE_STEPS", str(EVERY))
        yield server


def test_one_trace_leads_from_the_run_of_the_asset_to_the_parts_of_a_step(platform: Platform, collector: Collector):
    store = platform.proposed(run={"steps": 3 * EVERY})
    assert platform.materialize([keys.key(TINY, "training")], store.id).success
    collector.answer = 503
    platform.apply("traces")
    assert collector.spans == []  # nothing is lost while the collector is away
    collector.answer = 200
    for _ in range(3):
        platform.apply("traces")
    spans = collector.spans
    assert len({span.trace_id for span in spans}) == 1
    assert max(Counter(span.span_id for span in spans).values()) == 1
    ids = {span.span_id for span in spans}
    assert {span.name for span in spans if span.parent_span_id and span.parent_span_id not in ids} == set()
    paths = ["/".join(above(span, spans)[1:]) for span in spans]
    top = f"job {store.id}-i1/rank 0"
    assert {f"{top}/step {step}/{part}" for step in (10, 20, 30) for part in ("data", "forward", "optimizer")} <= {
        *paths
    }
    assert {f"{top}/phase {name}" for name in ("starting", "staging", "training", "committing")} <= {*paths}
    assert f"{top}/step 11" not in paths
    assert {above(span, spans)[0] for span in spans} == {f"{TINY}/training"}
    by_id = {span.span_id: span for span in spans}
    for span in spans:  # clocks of one machine: what is inside began no earlier
        outer = by_id.get(span.parent_span_id)
        assert outer is None or "rank" in span.name or outer.start_time_unix_nano <= span.start_time_unix_nano + 10**7


def test_a_training_that_ran_without_traces_is_not_sent(platform: Platform, collector: Collector):
    store = platform.finished()
    platform.apply("traces")
    assert collector.requests == [] and not (store.folder / files.SPANS).exists()
    assert not list((platform.home.durable / "opentelemetry" / "open").glob("*"))


def test_without_a_place_for_traces_nothing_is_sent_and_nothing_is_noted(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert "no place is set" in str(platform.tick("traces").skip_message)
    assert not (platform.home.durable / "opentelemetry").exists()


def test_a_bad_setting_is_one_sentence_of_the_sensor(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
    assert "found 'collector:4318', expected an address" in str(platform.tick("traces").skip_message)


def test_the_definitions_import_no_library_of_opentelemetry():
    program = (
        "import slipway.definitions, sys; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Traces, live: a training that a person launches is one trace at a collector, sent by the daemon as it goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.assets import keys
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until
from tests.resources.opentelemetry.collector import Collector, above, listening

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
EVERY, STEPS, TRIAL_STEPS = 20, 60, 40
PATIENCE = 600.0


@pytest.fixture
def collector() -> Iterator[Collector]:
    with listening() as server:
        yield server


@pytest.fixture
def traced(collector: Collector, own_mark: dict[str, str], tmp_path: Path) -> Iterator[Instance]:
    """An instance whose traces go to the collector, as `slipway dev` with OpenTelemetry's variables has them."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "SLIPWAY_TRACE_STEPS": str(EVERY)}
    drill_instance = Instance(tmp_path, small_recipes.write(tmp_path, TRIAL_STEPS), {**own_mark, **variables})
    try:
        drill_instance.start()
        drill_instance.make_snapshot()
        yield drill_instance
    finally:
        drill_instance.dispose()


def test_a_training_is_one_trace_from_the_run_of_its_asset_to_the_parts_of_each_ranks_steps(
    traced: Instance, collector: Collector
):
    training = traced.propose(small_recipes.PAIR, "traced", steps=STEPS)
    run = traced.materialize(training)
    wait_until(lambda: traced.succeeded(run), "the training has ended", PATIENCE)
    asset = keys.key(small_recipes.PAIR, "training").to_user_string()
    wait_until(lambda: asset in {span.name for span in collector.spans}, "its run is sent", PATIENCE)
    job = f"job {training.id}-i1"
    expected: set[tuple[str, ...]] = {(asset, job, f"rank {rank}") for rank in (0, 1)}
    expected |= {(*rank, f"phase {name}") for rank in expected for name in ("starting", "staging", "training")}
    expected |= {
        (asset, job, f"rank {rank}", f"step {step}", part)
        for rank in (0, 1)
        for step in range(EVERY, STEPS + 1, EVERY)
        for part in ("data", "forward", "backward", "communication", "optimizer")
    }
    wait_until(lambda: expected <= paths(collector), "all of it is sent", PATIENCE)
    spans = collector.spans
    assert len({span.trace_id for span in spans}) == 1 and len({span.span_id for span in spans}) == len(spans)
    services = {
        attribute.value.string_value
        for request in collector.requests
        for resource in request.resource_spans
        for attribute in resource.resource.attributes
        if attribute.key == "service.name"
    }
    assert services == {"slipway"}


def paths(collector: Collector) -> set[tuple[str, ...]]:
    """The names from the outermost span to each one; nothing while one is sent whose outer one is not yet."""
    spans = collector.spans
    known = {span.span_id for span in spans}
    if any(span.parent_span_id and span.parent_span_id not in known for span in spans):
        return set()
    return {tuple(above(span, spans)) for span in spans}

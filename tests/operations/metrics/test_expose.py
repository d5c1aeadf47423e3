"""Expose: what the platform exports follows from its facts, in Prometheus' format, with bounded labels."""

import re
from dataclasses import replace

import pytest

from slipway.operations.metrics import catalog, expose
from slipway.operations.metrics.facts import (
    DagsterReading,
    FleetNodeReading,
    PlatformFacts,
    SensorReading,
    ServedReading,
    SweepReading,
    TierReading,
    TrainingReading,
)

pytestmark = pytest.mark.pure

RUNNING = TrainingReading(
    "t-1",
    "tiny",
    "running",
    since=100.0,
    should_run=True,
    incarnation=2,
    step=40,
    steps=100,
    nodes=2,
    still=3.0,
    waiting=1.0,
    staged=7,
    spent={"steps": 60.0, "repeated": 5.0},
    ettr={"meta": 0.9, "window": None},
    goodput=0.8,
    mfu=0.4,
    failures=1,
    incidents={"machine": 1},
    checkpoints={"durable": 2},
    newest={"durable": 900.0},
    checkpoint_step=40,
)
FACTS = PlatformFacts(
    at=1000.0,
    trainings=(RUNNING,),
    duties={"run": 1},
    nodes=(FleetNodeReading("n-1", "ready", "suspect", 2),),
    sweeps=(SweepReading("s", "open", {"running": 2}, 1.5),),
    served=(ServedReading("m", 3, False),),
    tiers=(TierReading("durable", 100, 40, 0.001),),
    dagster=DagsterReading((SensorReading("job_watch", True, 2.0, 0.1),), {"SENSOR": 1.0}, {"started": 1}, 0.0, 9, 4.0),
    unreadable=("sweeps",),
    read=1,
    seconds=0.2,
)


def test_each_metric_of_the_catalogue_has_a_sample_where_there_are_facts_for_it() -> None:
    assert expose.samples(FACTS).names() == {metric.name for metric in catalog.PLATFORM_METRICS}


def test_every_line_is_in_prometheus_format() -> None:
    sample = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? -?[0-9.e+-]+')
    lines = expose.samples(FACTS).text().splitlines()
    assert [line for line in lines if not line.startswith("# ") and not sample.fullmatch(line)] == []
    assert 'slipway_training_spent_seconds{training="t-1",bucket="repeated"} 5.0' in lines
    assert 'slipway_training_checkpoint_age_seconds{training="t-1",tier="durable"} 100.0' in lines
    assert 'slipway_training_ettr_ratio{training="t-1",definition="meta"} 0.9' in lines


def test_what_is_not_known_has_no_sample() -> None:
    unknown = replace(RUNNING, still=None, mfu=None, goodput=None, spent={})
    sample_names = expose.samples(replace(FACTS, trainings=(unknown,), dagster=None)).names()
    assert not sample_names & {"slipway_training_still_seconds", "slipway_training_mfu_ratio", "slipway_sensor_running"}


def test_a_fleet_that_cannot_be_read_is_not_a_fleet_without_nodes() -> None:
    text = expose.samples(replace(FACTS, nodes=(), unreadable=("fleet",))).text()
    assert "slipway_nodes{" not in text
    assert 'slipway_unreadable{subject="fleet"} 1.0' in text


def test_trainings_that_are_over_are_all_counted_and_only_the_newest_have_series() -> None:
    over = tuple(replace(RUNNING, id=f"t-{at}", state="succeeded", since=float(at)) for at in range(2, 502))
    text = expose.samples(replace(FACTS, trainings=(*over, RUNNING))).text()
    assert 'slipway_trainings{state="succeeded"} 500.0' in text
    assert text.count("slipway_training_step{") == expose.MAX_ENDED_SERIES + 1
    assert 'slipway_training_step{training="t-501"}' in text
    assert 'slipway_training_step{training="t-2"}' not in text


def test_units_and_types_are_in_the_names() -> None:
    for metric in catalog.PLATFORM_METRICS:
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert not metric.help.endswith("."), metric.name

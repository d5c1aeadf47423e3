"""Job metrics: what a job exports follows from the events of its ledger and its ranks' heartbeats."""

import pytest

from slipway.trainer.base.exposition import Exposition
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.metrics.job_metrics import JOB_METRICS, JobFigures, expose_ranks
from slipway.trainer.record.heartbeat import Beat

pytestmark = pytest.mark.pure

STEP: JournalEvent = {
    "event": "step", "t": 10.0, "step": 1, "samples": 8, "tokens": 512, "loss": 2.5, "accuracy": 0.25,
    "learning_rate": 0.01, "gradient_norm": 1.5, "seconds": 0.5, "samples_per_second": 16.0,
    "tokens_per_second": 1024.0, "flops_per_second": 1e9, "mfu": 0.4, "data_seconds": 0.1, "forward_seconds": 0.2,
    "communication_seconds": 0.05, "cpu_cores": 1.0, "cpu_wait": 0.0, "host_memory": 1e9,
    "host_memory_free_share": 0.5, "gpu_use": 0.9, "gpu_memory": 2e9, "gpu_memory_total": 8e9, "gpu_memory_retries": 0,
}  # fmt: skip
EVENTS: list[JournalEvent] = [
    {"event": "phase", "t": 1.0, "phase": "building", "step": 0},
    {"event": "met", "t": 2.0, "world": 4},
    {"event": "phase", "t": 4.0, "phase": "training", "step": 0},
    {"event": "restored", "t": 4.0, "step": 0, "commit": "c", "seconds": 2.0},
    STEP,
    {**STEP, "t": 10.5, "step": 2, "loss": 2.25},
    {"event": "bound", "t": 11.0, "step": 2, "bound": "data", "share": 0.2},
    {"event": "validated", "t": 11.0, "step": 2, "loss": 2.75},
    {"event": "committed", "t": 12.0, "step": 2, "seconds": 3.0, "bytes": 100, "blocked_seconds": 0.25},
    {"event": "commit_failed", "t": 13.0, "step": 3, "reason": "full"},
    {"event": "replicated", "t": 13.0, "step": 2, "tier": "durable", "bytes": 100, "seconds": 1.0},
    {"event": "replication_failed", "t": 13.0, "step": 2, "tier": "backup", "reason": "away"},
    {"event": "skipped", "t": 14.0, "step": 3},
    {"event": "incident", "t": 14.0, "kind": "spike", "step": 3},
    {"event": "not_recorded", "t": 15.0, "events": 2},
    {"event": "of a later version", "t": 16.0},
]


def exposed(*events: JournalEvent) -> str:
    into = Exposition()
    JobFigures("t").add(events).expose(into)
    return into.text()


def test_each_metric_of_a_job_has_a_sample_once_its_event_is_there() -> None:
    into = Exposition()
    JobFigures("t").add(EVENTS).expose(into)
    expose_ranks(into, "t", [Beat(0, "training", 2, 1.0, 1.0, own=0.4, node="n")], {0: 0.5})
    assert into.names() == {metric.name for metric in JOB_METRICS}


def test_the_last_step_counts_and_the_seconds_of_all_steps() -> None:
    lines = exposed(*EVENTS).splitlines()
    assert 'slipway_job_step{training="t"} 2.0' in lines
    assert 'slipway_job_loss{training="t"} 2.25' in lines
    assert 'slipway_job_step_seconds_count{training="t"} 2.0' in lines
    assert 'slipway_job_step_seconds_bucket{training="t",le="0.5"} 2.0' in lines
    assert 'slipway_job_section_seconds_total{training="t",section="data"} 0.2' in lines
    assert 'slipway_job_phase_seconds_total{training="t",phase="building"} 3.0' in lines
    assert 'slipway_job_checkpoint_blocked_seconds_total{training="t"} 0.25' in lines
    assert 'slipway_job_copy_failures_total{training="t",tier="backup"} 1.0' in lines


def test_taking_in_what_is_new_piece_by_piece_gives_the_same() -> None:
    into, figures = Exposition(), JobFigures("t")
    for event in EVENTS:
        figures.add([event])
    figures.expose(into)
    assert into.text() == exposed(*EVENTS)


def test_counters_of_faults_begin_at_zero_so_that_the_first_one_is_an_increase() -> None:
    assert 'slipway_job_checkpoint_failures_total{training="t"} 0.0' in exposed()


def test_a_label_is_escaped() -> None:
    into = Exposition()
    expose_ranks(into, 'a"b\\c', [Beat(0, "training", 2, 1.0, 1.0, node="n")], {})
    assert 'training="a\\"b\\\\c"' in into.text()


def test_units_and_types_are_in_the_names() -> None:
    for metric in JOB_METRICS:
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.kind == "histogram") == bool(metric.bounds), metric.name

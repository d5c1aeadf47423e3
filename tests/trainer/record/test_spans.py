"""Spans: where traces are sent, every rank records its phases; where they are not, nothing is written."""

import itertools
from pathlib import Path

import pytest

from slipway.trainer.base import journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record import files, spans
from slipway.trainer.record.claims import Token
from slipway.trainer.record.phases import BUILDING, TRAINING
from slipway.trainer.record.recorder import RankRecorder

pytestmark = pytest.mark.pure
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


def recorded(store: Path, rank: int) -> list[JournalEvent]:
    with RankRecorder(store, Token(1), rank) as recorder:
        recorder.enter(BUILDING, 0)
        recorder.enter(TRAINING, 0)
        recorder.enter(TRAINING, 1)
    return journal.read(store / files.SPANS / f"000001.0000.spans-{rank}.jsonl").events


def test_any_rank_records_its_phases_where_traces_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT["OTEL_EXPORTER_OTLP_ENDPOINT"])
    monkeypatch.setenv("SLIPWAY_NODE", "node-7")
    segment, rank, *phases, end = recorded(tmp_path, 3)
    assert segment["format"] == spans.FORMAT and (rank["rank"], rank["node"]) == (3, "node-7")
    assert [phase["name"] for phase in phases] == ["starting", "building", "training"]
    assert end["event"] == "end" and phases[0]["begun"] == rank["since"]
    assert all(before["t"] <= after["begun"] + 0.001 for before, after in itertools.pairwise(phases))


def test_nothing_is_recorded_where_no_traces_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in spans.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert recorded(tmp_path, 0) == [] and not (tmp_path / files.SPANS).exists()


def test_the_spans_of_a_rank_are_no_part_of_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT["OTEL_EXPORTER_OTLP_ENDPOINT"])
    recorded(tmp_path, 0)
    assert {path.name for path in (tmp_path / files.LEDGER).iterdir()} == {"000001.0000.rank-0.jsonl"}


@pytest.mark.parametrize(
    ("environ", "steps"),
    [
        ({}, 0),
        (ENDPOINT, spans.DEFAULT_STEPS),
        ({**ENDPOINT, "SLIPWAY_TRACE_STEPS": "7"}, 7),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, 0),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/traces"}, spans.DEFAULT_STEPS),
        ({**ENDPOINT, "SLIPWAY_TRACE_STEPS": "often"}, 0),
    ],
)
def test_the_environment_says_which_steps_are_traced(environ: dict[str, str], steps: int):
    assert spans.of_rank(environ) == steps


def test_a_bad_number_of_steps_is_reported_and_costs_the_spans_alone(capfd: pytest.CaptureFixture[str]):
    assert spans.of_rank({**ENDPOINT, "SLIPWAY_TRACE_STEPS": "0"}) == 0
    assert "SLIPWAY_TRACE_STEPS: found '0', expected a number of steps, 1 or more" in capfd.readouterr().err

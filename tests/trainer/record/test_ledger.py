"""The ledger: segments of several writers and incarnations, read as one history."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import journal
from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Token

pytestmark = pytest.mark.pure


def segment(folder: Path, token: Token, writer: str, *events: dict[str, Any]) -> None:
    """A segment with events of chosen times."""
    with journal.Journal(folder / "ledger" / f"{token}.{writer}.jsonl") as log:
        log.append(*events)


def step(number: int, at: float, loss: float) -> dict[str, Any]:
    return {"event": "step", "t": at, "step": number, "loss": loss}


def test_a_segment_begins_with_its_format_once(tmp_path: Path) -> None:
    for _ in range(2):
        ledger.note(tmp_path, Token(3, 1), "rank-0", "started", world=2)
    events = ledger.read(tmp_path)
    assert [event["event"] for event in events] == ["segment", "started", "started"]
    assert (events[0]["format"], events[0]["incarnation"], events[0]["generation"]) == (ledger.FORMAT, 3, 1)


def test_events_carry_their_time_and_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 12.5)
    ledger.note(tmp_path, Token(1), "rank-0", "ended", outcome="stopped", step=7)
    assert ledger.read(tmp_path)[1] == {"event": "ended", "t": 12.5, "outcome": "stopped", "step": 7, "incarnation": 1}


def test_a_training_without_a_ledger_has_no_events(tmp_path: Path) -> None:
    assert ledger.read(tmp_path) == []


def test_segments_are_merged_by_time_and_events_have_their_incarnation(tmp_path: Path) -> None:
    segment(tmp_path, Token(1), "rank-0", step(1, 10, 4.0), step(2, 30, 3.0))
    segment(tmp_path, Token(1), "control", {"event": "incident", "t": 20})
    segment(tmp_path, Token(2), "rank-0", step(3, 40, 2.0))
    events = [(event["event"], event["t"], event["incarnation"]) for event in ledger.read(tmp_path)]
    assert events == [("step", 10, 1), ("incident", 20, 1), ("step", 30, 1), ("step", 40, 2)]


@pytest.mark.process
def test_writers_in_several_processes_lose_nothing(tmp_path: Path) -> None:
    def write(rank: int) -> None:
        segment = ledger.Ledger(tmp_path, Token(1), f"writer-{rank}")
        for number in range(50):
            segment.write("step", step=number, loss=1.0)
        segment.close()

    writers = [multiprocessing.get_context("fork").Process(target=write, args=(rank,)) for rank in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sum(event["event"] == "step" for event in ledger.read(tmp_path)) == 150


def test_the_loss_curve_has_a_repeated_step_once_with_its_last_loss(tmp_path: Path) -> None:
    segment(tmp_path, Token(1), "rank-0", step(1, 10, 4.0), step(2, 11, 3.0), step(3, 12, 2.5))
    segment(tmp_path, Token(2), "rank-0", step(2, 20, 3.1), step(3, 21, 2.6), step(4, 22, 2.0))
    assert ledger.loss_curve(ledger.read(tmp_path)) == [(1, 4.0), (2, 3.1), (3, 2.6), (4, 2.0)]


def test_the_validation_curve_has_each_step_once(tmp_path: Path) -> None:
    validated = [{"event": "validated", "t": at, "step": 10 * at, "loss": 5.0 - at} for at in (1, 2)]
    segment(tmp_path, Token(1), "rank-0", *validated, step(20, 2.5, 9.0), {**validated[1], "t": 3})
    assert ledger.validation_curve(ledger.read(tmp_path)) == [(10, 4.0), (20, 3.0)]


def test_a_torn_last_event_does_not_hide_the_others(tmp_path: Path) -> None:
    segment(tmp_path, Token(1), "rank-0", step(1, 10, 4.0), step(2, 11, 3.0))
    (path,) = ledger.segments(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    assert ledger.loss_curve(ledger.read(tmp_path)) == [(1, 4.0)]


def test_a_clock_that_is_behind_reorders_no_incarnation(tmp_path: Path) -> None:
    """The second incarnation ran on a node whose clock is 30 s behind."""
    segment(tmp_path, Token(1), "rank-0", step(1, 100, 4.0), step(2, 110, 3.0))
    segment(tmp_path, Token(2), "rank-0", step(2, 90, 3.1), step(3, 95, 2.6))
    assert ledger.loss_curve(ledger.read(tmp_path)) == [(1, 4.0), (2, 3.1), (3, 2.6)]


def test_a_clock_that_is_set_back_reorders_no_events_of_a_writer(tmp_path: Path) -> None:
    segment(tmp_path, Token(1), "rank-0", step(1, 100, 4.0), step(2, 60, 3.0), step(3, 61, 2.0))
    assert [event["step"] for event in ledger.read(tmp_path)] == [1, 2, 3]


def test_a_later_generation_comes_after_an_earlier_one(tmp_path: Path) -> None:
    segment(tmp_path, Token(1, 0), "rank-0", step(1, 100, 4.0), step(2, 110, 3.0))
    segment(tmp_path, Token(1, 1), "rank-0", step(2, 80, 2.9))
    segment(tmp_path, Token(1), "control", {"event": "incident", "t": 200})
    assert ledger.loss_curve(ledger.read(tmp_path)) == [(1, 4.0), (2, 2.9)]
    assert ledger.read(tmp_path)[-1]["event"] == "incident"


def test_a_tail_reads_a_training_in_the_same_order(tmp_path: Path) -> None:
    segment(tmp_path, Token(1), "rank-0", step(1, 100, 4.0))
    segment(tmp_path, Token(2), "rank-0", step(2, 90, 3.0))
    assert [event["step"] for event in ledger.Tail(tmp_path).new()] == [1, 2]

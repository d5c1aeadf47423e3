"""The record writer: a file system that stands still or refuses costs records at most, and never a step."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.record import causes, fence, heartbeat, ledger, phases
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Beat, Heartbeat, Position
from slipway.trainer.record.ledger import Ledger
from slipway.trainer.record.record_writer import RecordWriter
from slipway.trainer.record.recorder import RankRecorder
from tests.conftest import until

pytestmark = pytest.mark.pure

AT_ONCE = 30.0
"""Seconds: far more than a thousand events take in memory, and far less than the file system stands still."""


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[RankRecorder]:
    with RankRecorder(tmp_path, Token(1), 0) as recorder:
        yield recorder


def progress_of(folder: Path) -> tuple[str, int, int] | None:
    beats = heartbeat.read(folder, Token(1))
    return (beats[0].phase, beats[0].step, beats[0].done) if beats else None


def steps(folder: Path) -> list[int]:
    return [event["step"] for event in ledger.read(folder) if event["event"] == "step"]


def frozen_segment(folder: Path) -> Path:
    """A FIFO in place of rank 0's segment: to open it for writing blocks until somebody reads."""
    path = folder / "ledger" / f"{Token(1)}.rank-0.jsonl"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    return path


def test_steps_go_on_while_the_store_stands_still_and_nothing_is_lost(tmp_path: Path):
    path = frozen_segment(tmp_path)
    recorder = RankRecorder(tmp_path, Token(1), 0)
    begun = time.monotonic()
    for step in range(1000):
        recorder.enter(phases.TRAINING, step)
        recorder.record("step", step=step, loss=1.0)
    assert time.monotonic() - begun < AT_ONCE
    thawed = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    path.unlink()
    recorder.close()
    os.close(thawed)
    assert steps(tmp_path) == list(range(1000))


def test_a_heartbeat_that_stands_still_does_not_hold_up_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    goes_on = threading.Event()

    def slow(path: Path, data: bytes, **_: object) -> None:
        goes_on.wait(600)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr("slipway.trainer.base.atomic.replace", slow)
    with RankRecorder(tmp_path, Token(1), 0) as recorder:
        begun = time.monotonic()
        for step in range(1000):
            recorder.enter(phases.TRAINING, step)
            recorder.record("step", step=step, loss=1.0)
        assert time.monotonic() - begun < AT_ONCE
        goes_on.set()
        until(lambda: progress_of(tmp_path) == ("training", 999, 0), "the heartbeat")
    assert steps(tmp_path) == list(range(1000))


def test_a_training_thread_that_hangs_is_seen_to_stay_at_one_place(recorder: RankRecorder, tmp_path: Path):
    """The record writer goes on to write, and moves nothing."""
    recorder.enter(phases.TRAINING, 7)

    def last() -> Beat | None:
        return next(iter(heartbeat.read(tmp_path, Token(1))), None)

    first = until(last, "the first heartbeat")
    assert first is not None
    later = until(lambda: (beat := last()) and beat.at > first.at and beat, "the next heartbeat")
    assert later and later.progress == first.progress and later.progress_at == first.progress_at


def test_a_heartbeat_has_the_longest_validation(recorder: RankRecorder, tmp_path: Path):
    for seconds in (3.0, 5.0, 4.0):
        recorder.keep_validation(seconds)
    recorder.enter(phases.VALIDATING, 5)
    until(lambda: [beat.validated for beat in heartbeat.read(tmp_path, Token(1))] == [5.0], "the heartbeat")


def test_work_inside_a_phase_moves_the_place(recorder: RankRecorder, tmp_path: Path):
    done = 5
    recorder.enter(phases.RESTORING, 0, lambda: done)
    until(lambda: progress_of(tmp_path) == ("restoring", 0, 0), "the phase")
    done = 12
    until(lambda: progress_of(tmp_path) == ("restoring", 0, 7), "its progress")


def test_what_the_store_refuses_for_a_while_is_written_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "ledger").write_text("a file where a folder should be")
    with RankRecorder(tmp_path, Token(1), 0) as recorder:
        for step in range(3):
            recorder.record("step", step=step, loss=1.0)
        until(lambda: "the ledger cannot be written" in capsys.readouterr().err, "the warning")
        (tmp_path / "ledger").unlink()
        until(lambda: (tmp_path / "ledger").is_dir() and steps(tmp_path) == [0, 1, 2], "the events")


def test_events_that_find_no_room_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "ledger").write_text("a file where a folder should be")
    position = Position()
    beats = Heartbeat(tmp_path, Token(1), 0)
    record_writer = RecordWriter(position, beats, lambda writer: Ledger(tmp_path, Token(1), writer), room=300)
    for step in range(10):
        record_writer.record("rank-0", "step", {"step": step, "loss": 1.0})
    assert "events are lost" in capsys.readouterr().err
    (tmp_path / "ledger").unlink()
    assert record_writer.flush(10)
    record_writer.close()
    written, (lost,) = steps(tmp_path), [e for e in ledger.read(tmp_path) if e["event"] == "not_recorded"]
    assert written == list(range(len(written)))
    assert lost["events"] == 10 - len(written) > 0


def test_the_end_waits_for_a_store_only_until_its_deadline(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "ledger").write_text("a file where a folder should be")
    record_writer = RecordWriter(
        Position(), Heartbeat(tmp_path, Token(1), 0), lambda writer: Ledger(tmp_path, Token(1), writer)
    )
    record_writer.record("rank-0", "ended", {"step": 7})
    begun = time.monotonic()
    record_writer.close(0.1)
    assert time.monotonic() - begun < AT_ONCE
    assert "1 events of the ledger could not be written" in capsys.readouterr().err


def test_only_rank_0_writes_the_ledger(tmp_path: Path):
    with RankRecorder(tmp_path, Token(1), 1) as other:
        other.record("step", step=1, loss=1.0)
    assert ledger.read(tmp_path) == []


def test_a_rank_writes_events_of_its_own_to_a_segment_of_its_own(tmp_path: Path):
    with RankRecorder(tmp_path, Token(1), 3) as other:
        other.record_own("profiler", "profiled", first=1, last=3)
    assert [path.name for path in ledger.segments(tmp_path)] == [f"{Token(1)}.profiler-3.jsonl"]


def test_who_reads_the_exit_finds_all_steps_in_the_ledger(
    recorder: RankRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert fence.claim(tmp_path, Token(1), nodes=("local",), cause="a test", by="a test")
    steps_at_exit: list[list[int]] = []
    end = fence.end

    def looked_at(*arguments: Any) -> None:
        end(*arguments)
        steps_at_exit.append(steps(tmp_path))

    monkeypatch.setattr(fence, "end", looked_at)
    for step in range(200):
        recorder.record("step", step=step, loss=1.0)
    recorder.record_end("succeeded", causes.DONE, "all steps done", 200)
    assert steps_at_exit == [list(range(200))]


@pytest.mark.parametrize("fields", [{"loss": float("nan")}, {"figures": {"loss": float("inf")}}])
def test_a_number_that_json_does_not_have_is_refused_at_once(recorder: RankRecorder, fields: dict[str, Any]):
    with pytest.raises(ValueError, match="not JSON compliant"):
        recorder.record("step", step=1, **fields)


def test_what_the_caller_changes_later_is_written_as_it_was(recorder: RankRecorder, tmp_path: Path):
    figures = {"loss": 1.0}
    recorder.record("step", step=1, figures=figures)
    figures["loss"] = 2.0
    recorder.flush()
    assert ledger.read(tmp_path)[-1]["figures"] == {"loss": 1.0}

"""Heartbeats: at most one a second, and "alive but stuck" can be told from "working"."""

from pathlib import Path

import pytest

from slipway.trainer.record import heartbeat
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Beat, Heartbeat, RankPlace

pytestmark = pytest.mark.pure


class Clock:
    """A clock that moves when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    return clock


def test_a_beat_reads_back_with_its_rank_phase_and_step(tmp_path: Path, clock: Clock) -> None:
    Heartbeat(tmp_path, Token(1), 2).beat("training", 7)
    assert heartbeat.read(tmp_path, Token(1)) == [Beat(2, "training", 7, 100.0, 100.0, node="local")]


def test_there_is_one_beat_a_rank_by_rank_and_none_of_another_token(tmp_path: Path, clock: Clock) -> None:
    for token in (Token(1), Token(1, 1), Token(2)):
        for rank in (10, 0, 2):
            Heartbeat(tmp_path, token, rank).beat("training", token.incarnation)
    beats = heartbeat.read(tmp_path, Token(2))
    assert [(beat.rank, beat.step) for beat in beats] == [(0, 2), (2, 2), (10, 2)]


def test_progress_moves_with_the_step(tmp_path: Path, clock: Clock) -> None:
    rank_heartbeat = Heartbeat(tmp_path, Token(1), 0)
    for step, clock.now in ((1, 100.0), (2, 105.0), (2, 110.0), (2, 115.0)):
        rank_heartbeat.beat("training", step)
    assert heartbeat.read(tmp_path, Token(1)) == [Beat(0, "training", 2, 115.0, 105.0, node="local")]


def test_progress_moves_with_the_phase(tmp_path: Path, clock: Clock) -> None:
    rank_heartbeat = Heartbeat(tmp_path, Token(1), 0)
    rank_heartbeat.beat("training", 5)
    clock.now = 105.0
    rank_heartbeat.beat("committing", 5)
    assert heartbeat.read(tmp_path, Token(1)) == [Beat(0, "committing", 5, 105.0, 105.0, node="local")]


def test_a_new_phase_is_written_at_once_and_steps_at_most_once_a_second(tmp_path: Path, clock: Clock) -> None:
    rank_heartbeat = Heartbeat(tmp_path, Token(1), 0)
    rank_heartbeat.beat("building", 0)
    clock.now += 0.1
    rank_heartbeat.beat("training", 0)
    clock.now += 0.1
    rank_heartbeat.beat("training", 1)
    (beat,) = heartbeat.read(tmp_path, Token(1))
    assert (beat.phase, beat.step) == ("training", 0)
    clock.now += 1.0
    rank_heartbeat.beat("training", 9)
    (beat,) = heartbeat.read(tmp_path, Token(1))
    assert beat.step == 9


def test_a_heartbeat_of_an_earlier_version_reads_as_one_that_counts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "heartbeats" / f"{Token(1)}.00000.json"
    path.parent.mkdir()
    path.write_text('{"at": 1.0, "phase": "restoring", "progress_at": 1.0, "rank": 0, "step": 4}')
    (beat,) = heartbeat.read(tmp_path, Token(1))
    assert beat.progress == RankPlace("restoring", 4, 0)


def test_one_heartbeat_that_cannot_be_decoded_hides_no_other(tmp_path: Path, clock: Clock) -> None:
    Heartbeat(tmp_path, Token(1), 0).beat("training", 7)
    (tmp_path / "heartbeats" / f"{Token(1)}.00001.json").write_bytes(b"")
    assert [beat.rank for beat in heartbeat.read(tmp_path, Token(1))] == [0]

"""Absence: the time in which nothing looked after trainings has that name in their ledgers."""

import time
from pathlib import Path

import pytest

from slipway.sensors.support import downtime
from slipway.trainer.base import atomic, codec
from tests.sensors.platform import Platform


def looked(root: Path, ago: float) -> None:
    """The last look was so many seconds ago."""
    atomic.replace(root / downtime.RECORD, codec.encode(downtime.LastWatched(time.time() - ago)))


def test_the_first_look_finds_no_absence_and_the_next_one_neither(tmp_path: Path):
    assert [downtime.seconds(tmp_path / "new") for _ in range(2)] == [0.0, 0.0]


def test_a_last_look_of_long_ago_is_an_absence_once(tmp_path: Path):
    looked(tmp_path, ago=1000)
    assert downtime.seconds(tmp_path) == pytest.approx(1000, abs=30)
    assert downtime.seconds(tmp_path) == 0


@pytest.mark.parametrize("content", [b"{}", b"\x00"])
def test_a_damaged_record_says_nothing_and_is_replaced(tmp_path: Path, content: bytes):
    (tmp_path / downtime.RECORD).write_bytes(content)
    assert downtime.seconds(tmp_path) == 0
    assert codec.read(tmp_path / downtime.RECORD, downtime.LastWatched).at > 0


def test_the_job_watch_notes_an_absence_in_the_ledgers_of_open_trainings(platform: Platform):
    store = platform.start_training()
    looked(platform.trainings.root, ago=1000)
    store.want("stop", "test", "nothing is to start")
    platform.tick("job_watch")
    [away] = [event for event in store.events() if event["event"] == "away"]
    assert away["seconds"] == pytest.approx(1000, abs=60)
    platform.tick("job_watch")
    assert len([event for event in store.events() if event["event"] == "away"]) == 1

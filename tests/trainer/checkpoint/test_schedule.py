"""The schedule of saves (C3): without room for another save, the clock waits; a step that the recipe names does not."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.checkpoints import ALONE
from trainer.base import atomic
from trainer.checkpoint.saving.schedule import SaveSchedule
from trainer.checkpoint.tiers.tier import DURABLE, NVME
from trainer.config import resolved
from trainer.record import fence
from trainer.record.fence import Token


@pytest.fixture
def schedule(tmp_path: Path, document: dict[str, Any]) -> SaveSchedule:
    """A schedule by which the NVMe is due at every moment and the durable tier at every fifth step."""
    rules = {"nvme": {"minutes": 1e-9, "last": 1}, "durable": {"minutes": 0, "last": 1}}
    path = tmp_path / "config.json"
    path.write_bytes(atomic.readable_json({**document, "storage": rules}))
    fence.claim(tmp_path / "store", Token(1), nodes=(), cause="a test", by="test")
    return SaveSchedule(resolved.load(path), ALONE)


def tiers_at(schedule: SaveSchedule, step: int, has_room: bool) -> tuple[str, ...]:
    return schedule.start_saves(schedule.choice_as_number(step, has_room))


def test_without_room_a_save_that_is_due_by_the_clock_is_put_off_until_there_is_room(schedule: SaveSchedule) -> None:
    assert tiers_at(schedule, 6, has_room=False) == ()
    assert tiers_at(schedule, 7, has_room=True) == (NVME,)


def test_without_room_a_save_that_is_due_at_its_step_is_still_started(schedule: SaveSchedule) -> None:
    assert tiers_at(schedule, 10, has_room=False) == (DURABLE,)


def test_a_save_that_failed_after_a_wait_counts_as_a_cost(schedule: SaveSchedule) -> None:
    schedule.add_failure(600.0)
    assert tiers_at(schedule, 6, has_room=True) == ()

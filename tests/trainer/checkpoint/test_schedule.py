"""The schedule of saves: without room for another save, the clock waits; a step that the recipe names does not."""

from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import atomic
from slipway.trainer.checkpoint.saving.schedule import SaveSchedule
from slipway.trainer.checkpoint.tiers.ring import NodeRing, RingNode
from slipway.trainer.checkpoint.tiers.tier import DURABLE, NVME
from slipway.trainer.config import resolved
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.trainer.checkpoints import ALONE


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


def test_after_a_save_that_the_nvme_could_not_take_the_next_one_goes_to_the_durable_tier(
    schedule: SaveSchedule,
) -> None:
    assert tiers_at(schedule, 6, has_room=True) == (NVME,)
    schedule.add_failure(0.0, NVME)
    assert DURABLE in tiers_at(schedule, 7, has_room=True)
    assert tiers_at(schedule, 8, has_room=True) == (NVME,)


def test_on_several_nodes_a_save_that_is_due_on_the_durable_tier_goes_there_alone(
    tmp_path: Path, schedule: SaveSchedule
) -> None:
    ring = NodeRing((RingNode("a", "", (0,)), RingNode("b", "", (1,))))
    spread = SaveSchedule(resolved.load(tmp_path / "config.json"), ALONE, ring)
    assert tiers_at(spread, 6, has_room=True) == (NVME,)
    assert tiers_at(schedule, 10, has_room=True) == (NVME, DURABLE)
    assert tiers_at(spread, 10, has_room=True) == (DURABLE,)


def test_nodes_that_cannot_keep_copies_for_each_other_save_nothing_on_their_nvme(
    tmp_path: Path, schedule: SaveSchedule
) -> None:
    assert tiers_at(schedule, 6, has_room=True) == (NVME,)
    apart = SaveSchedule(resolved.load(tmp_path / "config.json"), ALONE, NodeRing(unusable="one folder for all"))
    assert tiers_at(apart, 6, has_room=True) == ()

"""Holder: beside another control plane every sensor and schedule of the definitions skips, and says who decides."""

import datetime

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.definitions import build
from slipway.resources.lease import HomeLease
from tests.conftest import Marked
from tests.resources.test_lease import other
from tests.sensors.platform import TINY, Platform


@pytest.fixture
def second(platform: Platform) -> Platform:
    """A platform as `slipway.definitions.here` makes it for a home."""
    platform.repository = build(
        platform.recipes, platform.resources, lease=HomeLease(platform.home.root)
    ).get_repository_def()
    return platform


def skipped(platform: Platform) -> dict[str, str]:
    """Why each sensor and schedule skips; empty for one that asks for something, or skips for no reason."""
    messages = {
        sensor.name: platform.tick(sensor.name).skip_message or "" for sensor in platform.repository.sensor_defs
    }
    for schedule in platform.repository.schedule_defs:
        with dg.build_schedule_context(
            instance=platform.instance,
            repository_def=platform.repository,
            resources=platform.resources,
            scheduled_execution_time=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        ) as context:
            messages[schedule.name] = schedule.evaluate_tick(context).skip_message or ""
    return messages


@pytest.mark.slow
def test_whoever_comes_second_decides_nothing_and_takes_over_when_the_first_is_dead(second: Platform, marked: Marked):
    store = second.start_training("a new one")
    with other(second.home.root) as first:
        messages = skipped(second)
        assert len(messages) > 12
        assert {name for name, why in messages.items() if f": process {first.pid} on " not in why} == set()
        assert store.newest_claim() is None
    after = skipped(second)
    assert not any("another control plane" in why for why in after.values())
    assert store.newest_claim() is not None
    second.stopped(store)


def test_the_first_is_not_held_up(second: Platform):
    assert not any("another control plane" in why for why in skipped(second).values())
    assert keys.key(TINY, "training") in second.repository.assets_defs_by_key

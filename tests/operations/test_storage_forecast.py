"""Storage planned: what checkpoints take of each tier, and when it is full, with a check that warns in time."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.operations import storage
from slipway.resources.tiers import Tiers
from slipway.trainer.base.units import DAY
from slipway.trainer.checkpoint.retention import forecast
from slipway.trainer.checkpoint.retention.forecast import Sample, outlook
from slipway.trainer.config.operation import RetentionRule
from tests.disks import mounted
from tests.sensors.platform import Platform

GB = 10**9


def grown(per_day: float, days: int, capacity: int = 100 * GB) -> list[Sample]:
    return [Sample(day * DAY, int(10 * GB + per_day * day), capacity) for day in range(days + 1)]


def test_a_tier_that_grows_is_full_when_its_room_is_used_up():
    tier_outlook = outlook(grown(5 * GB, days=10), planned=0)
    assert tier_outlook.growth * DAY == pytest.approx(5 * GB)
    assert tier_outlook.seconds_until_full == pytest.approx((100 - 60) / 5 * DAY)


def test_a_tier_that_does_not_grow_is_never_full():
    assert outlook(grown(0, days=10), planned=0).seconds_until_full is None
    assert outlook(grown(-GB, days=5), planned=0).seconds_until_full is None
    assert outlook(grown(5 * GB, days=0), planned=0).seconds_until_full is None


def test_a_tier_without_room_for_what_is_planned_is_full_now():
    assert outlook(grown(0, days=1), planned=91 * GB).seconds_until_full == 0


def test_a_tier_without_an_end_is_never_full():
    assert outlook(grown(5 * GB, days=10, capacity=0), planned=10**15).seconds_until_full is None


def test_growth_of_long_ago_does_not_count():
    samples = [Sample(day * DAY, min(day, 50) * GB, 100 * GB) for day in range(100)]
    assert outlook(samples, planned=0).growth == pytest.approx(0)


@given(st.floats(0, 1e3), st.floats(-1e6, 1e6), st.integers(2, 20))
def test_any_straight_line_is_found(rate: float, start: float, count: int):
    samples = [Sample(600.0 * n, int(10**12 + start + 600 * rate * n), 10**13) for n in range(count)]
    assert forecast.growth(samples) == pytest.approx(rate, abs=0.01)


def test_a_trainings_peak_is_all_that_is_kept_and_one_that_is_being_written():
    demand = forecast.demand(
        10 * GB, 10_000, 1.0, 100.0, RetentionRule(minutes=0, last=3, best=1), referred=1, saving=5
    )
    assert demand.peak_bytes == 60 * GB
    assert demand.bytes_per_second == pytest.approx(10 * GB / 100)
    assert demand.burst_bytes_per_second == pytest.approx(2 * GB)


def test_a_training_that_is_nearly_done_keeps_no_more_than_it_still_makes():
    demand = forecast.demand(10 * GB, 150, 1.0, 100.0, RetentionRule(minutes=0, last=5), referred=0, saving=5)
    assert demand.peak_bytes == 30 * GB


def test_checkpoints_that_are_kept_for_ever_add_up():
    demand = forecast.demand(GB, 10_000, 1.0, 100.0, RetentionRule(minutes=0, last=1, every=1000), referred=0, saving=0)
    assert demand.peak_bytes == 12 * GB
    assert demand.burst_bytes_per_second == 0


def looked(platform: Platform) -> tuple[dg.AssetMaterialization, dg.AssetCheckEvaluation]:
    result = platform.materialize([storage.KEY])
    assert result.success
    [materialization] = result.asset_materializations_for_node("platform__storage")
    [check] = result.get_asset_check_evaluations()
    return materialization, check


def test_each_tier_is_shown_with_its_use_and_outlook(platform: Platform):
    materialization, check = looked(platform)
    assert check.passed, check.description
    figures = {
        name: value.value for name, value in materialization.metadata.items() if isinstance(value.value, int | float)
    }
    assert 0 < figures["durable_used_gigabytes"] < figures["durable_gigabytes"]
    assert materialization.metadata["durable_days_until_full"].value == "never"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB; skips where mounting is not allowed."""
    with mounted(tmp_path / "small", "size=4m") as disk:
        yield disk


def test_a_tier_that_fills_up_is_a_warning(platform: Platform, small_disk: Path):
    platform.resources["tiers"] = Tiers(
        durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(small_disk)
    )
    looked(platform)
    (small_disk / "filled").write_bytes(bytes(3 << 20))
    _, check = looked(platform)
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert "backup: full in 0.0 days: 0.0 GB are free" in (check.description or "")


def test_a_running_trainings_checkpoints_that_will_not_fit_are_a_warning(platform: Platform, small_disk: Path):
    platform.resources["tiers"] = Tiers(
        durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(small_disk)
    )
    for record in (platform.finished().folder / "exits").glob("000001.*"):  # with its copy
        record.unlink()
    (small_disk / "filled").write_bytes(bytes((4 << 20) - 4096))
    _, check = looked(platform)
    assert not check.passed
    assert "backup: checkpoints need 0.0 GB more, and 0.0 GB are free" in (check.description or "")

"""A durable tier that fills up is told at the next tick, and once; also when it takes no record any more."""

import shutil
import time
from pathlib import Path

import dagster as dg
import pytest

from slipway.resources.daily_report import reading
from slipway.resources.daily_report import report as morning
from slipway.resources.daily_report.report import ReportItem
from slipway.resources.notify.settings import NotificationSettings
from slipway.resources.tiers import Tiers
from slipway.sensors.notifications import NAME, notifications_sensor
from tests.conftest import until
from tests.disks import mounted
from tests.resources.notify import servers


def waiting(durable: Path) -> list[ReportItem]:
    """What waits for a person, as the morning page and `slipway incidents` have it."""
    return morning.report(reading.read_facts(durable, time.time())).waiting


@pytest.mark.parametrize("free_bytes", [200_000, 0], ids=["95 %", "to the last byte"])
def test_a_durable_tier_that_fills_up_is_told_at_the_next_tick_and_once(tmp_path: Path, free_bytes: int):
    settings = NotificationSettings(urls_file=str(tmp_path / "urls"), group_seconds=0.0)
    sensor, report_asset = notifications_sensor(settings), dg.AssetSpec(["platform", "morning"])
    repository = dg.Definitions(assets=[report_asset], sensors=[sensor]).get_repository_def()
    with (
        mounted(tmp_path / "disk", "size=4m") as disk,
        servers.webhook() as hook,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        tiers = Tiers(durable=str(disk), nvme=str(tmp_path / "nvme"))
        Path(settings.urls_file).write_text(hook.webhook)

        def tick() -> None:
            with dg.build_sensor_context(
                instance, repository_def=repository, resources={"tiers": tiers}, sensor_name=NAME
            ) as context:
                sensor.evaluate_tick(context)

        tick()
        assert not waiting(disk)
        with (disk / "filled").open("wb", buffering=0) as file:
            file.write(bytes(shutil.disk_usage(disk).free - free_bytes))
        for _ in range(3):
            tick()
        until(lambda: hook.messages, "a message")
        tick()
        [sent] = hook.messages
        assert sent["title"] == "Slipway: tier durable: nearly full"
        assert "What to do: make room on durable" in sent["message"]
        [item] = waiting(disk)
        assert (item.subject, item.cause) == ("tier durable", "nearly full")
        (disk / "filled").unlink()
        tick()
        assert len(hook.messages) == 1 and not waiting(disk)

"""What stands in a folder of records and is none: nobody waits for it, and the others go on."""

import os

import pytest

from slipway.resources.trainings.store import WorkQueue
from slipway.sensors import job_watch, metrics_shipping
from tests.sensors.platform import Platform

pytestmark = pytest.mark.timeout(120, func_only=True)
STRAYS = ("@000001.a", "a b@000001.a", "..x@1", "@", "-x@000001.a", "ü@000001.a")


@pytest.mark.parametrize("sensor", [job_watch.NAME, metrics_shipping.NAME, "notifications"])
def test_a_stray_name_among_the_duties_stops_no_sensor(platform: Platform, sensor: str):
    store = platform.finished(*WorkQueue)
    for duty in WorkQueue:
        for name in STRAYS:
            (platform.trainings.root / ".open" / duty / name).touch()
    platform.apply(sensor)
    platform.apply(sensor)
    assert set(platform.trainings.pending(WorkQueue.RUN)) <= {store.id}


@pytest.mark.parametrize("sensor", ["offers", "sweep_completions"])
def test_a_pipe_in_the_place_of_a_snapshot_hangs_no_sensor(platform: Platform, sensor: str):
    snapshots = sorted((platform.home.durable / "snapshots").glob("*.json"))
    assert snapshots
    for path in snapshots:
        path.unlink()
        os.mkfifo(path)
    platform.apply(sensor)


@pytest.mark.slow
def test_whatever_stands_among_the_records_stops_no_sensor(platform: Platform):
    platform.finished(*WorkQueue)
    for folder in [path for path in platform.home.durable.rglob("*") if path.is_dir()]:
        (folder / "a stray name").touch()
        (folder / "stray.json").mkdir()
        os.mkfifo(folder / "stray-pipe.json")
    for sensor in platform.repository.sensor_defs:
        platform.apply(sensor.name)

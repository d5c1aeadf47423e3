"""Metadata restore: the drill of a lost database, by the documented steps, with every sensor running afterwards."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.operations import metadata_backup, metadata_restore
from slipway.resources import state
from slipway.resources.home import Home
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import codec
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from tests.disks import mounted
from tests.sensors.conftest import UNCAPTURED
from tests.sensors.platform import BY, Platform

SHOWN_BY = {
    WorkQueue.RUN: "job_watch",
    WorkQueue.CHECKPOINTS: "checkpoint_arrivals",
    WorkQueue.TRACKING: "metrics_shipping",
}


def with_backup(platform: Platform, folder: Path) -> Platform:
    folder.mkdir(exist_ok=True)
    platform.resources["tiers"] = Tiers(durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(folder))
    return platform


@pytest.fixture
def before(tracked: Platform) -> Platform:
    """A platform with a backup from before anything was shown."""
    with_backup(tracked, tracked.root / "backup")
    back_up(tracked)
    return tracked


def back_up(platform: Platform) -> None:
    metadata_backup.back_up(platform.instance, platform.tiers, platform.tracking, platform.root / "recipes")


def show_all(platform: Platform, store: TrainingStore) -> None:
    """Tick every sensor until nothing is owed; the sensors that only look must not fail either."""
    for _ in range(4):
        for sensor in platform.repository.sensor_defs:
            platform.apply(sensor.name)
    pending = [duty for duty in SHOWN_BY if platform.trainings.is_open(store.id, duty)]
    assert pending == []


def times_shown(platform: Platform, store: TrainingStore) -> dict[str, list[int]]:
    """How often the training, each of its checkpoints and each of its losses are shown."""
    partitions = [keys.checkpoint_partition(store.id, commit.step) for commit in store.commits()]
    client = platform.tracking.client()
    return {
        "training": [len(platform.materializations("training", store.id))],
        "checkpoints": [len(platform.materializations("checkpoint", partition)) for partition in partitions],
        "losses": sorted(metric.step for metric in client.get_metric_history(platform.tracking.run_of(store), "loss")),
    }


@contextlib.contextmanager
def restored(platform: Platform) -> Iterator[Platform]:
    """The platform on another machine, to which its databases did not come with it, after a restore."""
    root = platform.root / "again"
    for folder in ("home", "recipes", "corpus", "backup"):
        shutil.copytree(platform.root / folder, root / folder)
    (root / "home" / "mlflow.db").unlink()
    home = Home(root / "home")
    tiers = Tiers(durable=str(home.durable), nvme=home.nvme, backup=str(root / "backup"))
    assert metadata_restore.restore(home, tiers, BY).trainings == 1
    with dg.instance_for_test(UNCAPTURED, temp_dir=str(home.dagster)) as instance:
        yield with_backup(Platform(root, instance), root / "backup")


@pytest.mark.slow
def test_what_was_shown_since_the_backup_is_shown_again_once(before: Platform):
    store = before.finished(*SHOWN_BY)
    show_all(before, store)
    was = times_shown(before, store)
    assert was["training"] == [1] and set(was["checkpoints"]) == {1} and was["losses"]
    with restored(before) as platform:
        store = platform.trainings.store(store.id)
        assert not platform.materializations("training", store.id), "the database is that of the backup"
        for _ in range(2):
            show_all(platform, store)
            assert times_shown(platform, store) == was


@pytest.mark.slow
def test_what_the_backup_has_is_not_shown_twice(before: Platform):
    store = before.finished(*SHOWN_BY)
    show_all(before, store)
    was = times_shown(before, store)
    back_up(before)
    with restored(before) as platform:
        store = platform.trainings.store(store.id)
        show_all(platform, store)
        assert times_shown(platform, store) == was


def test_what_is_there_is_set_aside_and_not_removed(before: Platform):
    content = (before.home.root / "mlflow.db").read_bytes()
    done = metadata_restore.restore(before.home, before.tiers, BY)
    assert [Path(path).read_bytes() for path in done.aside] == [content]
    assert (before.home.dagster / "history").is_dir()
    [record] = (before.home.durable / metadata_restore.RECORDS).iterdir()
    noted = codec.read(record, metadata_restore.RestoreRecord, metadata_restore.FORMAT)
    assert (noted.by, noted.backup) == (BY, done.folder)


def test_settings_that_the_home_has_lost_come_back_and_others_stay(before: Platform):
    beside_dagster = Path(before.instance.root_directory).parent
    (beside_dagster / "costs.yaml").write_text("slipway: costs/1\n")
    (beside_dagster / "notifications.yaml").write_text("slipway: notifications/1\n")
    back_up(before)
    own = before.home.root / "notifications.yaml"
    own.write_text("newer")
    assert metadata_restore.restore(before.home, before.tiers, BY).settings == ("costs.yaml",)
    assert (before.home.root / "costs.yaml").read_text() == "slipway: costs/1\n"
    assert own.read_text() == "newer"


@pytest.mark.parametrize("aside", [False, True])
def test_a_restore_that_was_killed_between_its_renames_is_finished(tmp_path: Path, aside: bool):
    home, scratch = Home(tmp_path), tmp_path / f"{metadata_restore.SCRATCH}.abc"
    home.dagster.mkdir()
    (scratch / metadata_restore.VERIFIED / "dagster").mkdir(parents=True)
    (scratch / metadata_restore.VERIFIED / "dagster" / "restored").touch()
    if aside:
        home.dagster.rename(tmp_path / "dagster.before")
    metadata_restore.finish(home)
    assert (home.dagster / "restored").exists() == aside, "what is there stays, unless it was set aside"
    assert not scratch.exists()


def test_what_was_not_verified_is_put_nowhere(tmp_path: Path):
    (tmp_path / f"{metadata_restore.SCRATCH}.abc" / "fetched" / "dagster").mkdir(parents=True)
    metadata_restore.finish(Home(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_restored_database_is_not_taken_back_by_what_the_one_before_left_beside_it(before: Platform):
    database_path = before.home.root / "mlflow.db"
    with contextlib.closing(sqlite3.connect(database_path)) as opened:
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("CREATE TABLE since_the_backup (a)")
        opened.commit()
        beside = {name: database_path.with_name(f"mlflow.db{name}").read_bytes() for name in ("-wal", "-shm")}
    for name, data in beside.items():  # as a process that is killed leaves them
        database_path.with_name(f"mlflow.db{name}").write_bytes(data)
    [aside] = metadata_restore.restore(before.home, before.tiers, BY).aside
    assert not database_path.with_name("mlflow.db-wal").exists() and Path(f"{aside}-wal").read_bytes() == beside["-wal"]
    with contextlib.closing(sqlite3.connect(database_path)) as opened:
        tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master")}
    assert "runs" in tables and "since_the_backup" not in tables


def test_without_a_backup_nothing_is_touched(tracked: Platform):
    status_before = (tracked.home.root / "mlflow.db").stat()
    with pytest.raises(ValueError, match="metadata: found no backup, expected one; slipway backup makes one"):
        metadata_restore.restore(tracked.home, tracked.tiers, BY)
    assert (tracked.home.root / "mlflow.db").stat().st_ino == status_before.st_ino


def test_a_backup_of_a_newer_version_is_refused_and_nothing_is_touched(
    before: Platform, monkeypatch: pytest.MonkeyPatch
):
    newer = max(state.RELEASES) + 1
    with monkeypatch.context() as released:
        released.setitem(state.RELEASES, newer, "0.9")
        released.setattr(state, "STATE", newer)
        back_up(before)
    status_before = (before.home.root / "mlflow.db").stat()
    with pytest.raises(ValueError, match=rf"found a backup of state {newer}, which Slipway 0\.9 made, expected"):
        metadata_restore.restore(before.home, before.tiers, BY)
    assert (before.home.root / "mlflow.db").stat().st_ino == status_before.st_ino
    assert not (before.home.durable / metadata_restore.RECORDS).exists()


def test_a_restore_onto_a_disk_without_room_leaves_nothing_there(before: Platform, tmp_path: Path):
    with mounted(tmp_path / "small", "size=256k") as disk:
        with pytest.raises(OSError, match="No space left"):
            metadata_restore.restore(Home(disk), before.tiers, BY)
        assert list(disk.iterdir()) == []
    assert not (before.home.durable / metadata_restore.RECORDS).exists()


def test_a_damaged_backup_is_refused_and_nothing_is_touched(before: Platform):
    damaged = next((before.root / "backup").rglob("mlflow.db"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    status_before = (before.home.root / "mlflow.db").stat()
    with pytest.raises(DamagedCheckpoint, match=r"mlflow\.db"):
        metadata_restore.restore(before.home, before.tiers, BY)
    assert (before.home.root / "mlflow.db").stat().st_ino == status_before.st_ino

"""Backup and restore of a cluster: real databases on a real server, by PostgreSQL's own tools."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.operations import metadata_backup, metadata_restore
from slipway.resources import metadata_backup as backups
from slipway.resources import postgresql
from slipway.resources.metadata_backup import Figures
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import WorkQueue, all_trainings
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.record import files
from tests.cli import homes
from tests.operations import postgresql as server

RECIPES = Path(__file__).parents[1] / "embedded" / "recipes"
nightly = pytest.mark.nightly
needs_a_server = pytest.mark.skipif(not server.is_there(), reason="no PostgreSQL on this machine")


def test_a_file_of_services_without_sections_is_named_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "pg_service.conf"
    file.write_text("password=PLANTED\n[dagster]\n")
    monkeypatch.setenv(postgresql.SERVICE_FILE, str(file))
    with pytest.raises(ValueError, match=r"pg_service.conf, line 1: found no sections, expected \[dagster\]") as raised:
        postgresql.services()
    assert "PLANTED" not in str(raised.value)


def test_without_a_service_there_is_nothing_to_back_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(postgresql.SERVICE_FILE, raising=False)
    with pytest.raises(ValueError, match=r"PGSERVICEFILE=: found no section \[dagster\], expected one"):
        postgresql.services()


def test_a_missing_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="pg_dump: found no such program, expected the PostgreSQL client"):
        postgresql.dump("dagster", tmp_path)


@pytest.fixture(scope="module")
def services() -> Iterator[Path]:
    with server.serving() as file:
        yield file


@pytest.fixture
def tiers(services: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiers:
    """A cluster's tiers, and databases with two runs and one experiment."""
    monkeypatch.setenv(postgresql.SERVICE_FILE, str(services))
    (tmp_path / "backup").mkdir()
    shutil.copytree(RECIPES, tmp_path / "recipes")
    sql("dagster", "DROP TABLE IF EXISTS runs; CREATE TABLE runs (id int PRIMARY KEY, body text)")
    sql("dagster", "INSERT INTO runs VALUES (1, 'one'), (2, E'\\\\.\\n')")
    sql("mlflow", "DROP TABLE IF EXISTS experiments, registered_models")
    sql("mlflow", "CREATE TABLE experiments (id int); INSERT INTO experiments VALUES (0)")
    sql("mlflow", "CREATE TABLE registered_models (name text)")
    return Tiers(durable=str(tmp_path / "home" / "durable"), nvme="/nvme", backup=str(tmp_path / "backup"))


def sql(service: str, statement: str) -> None:
    command = ["psql", "--quiet", "--no-psqlrc", f"--dbname=service={service}", "--command", statement]
    subprocess.run(command, check=True, capture_output=True)


def backed_up(tiers: Tiers, tmp_path: Path) -> backups.Backup:
    figures = Figures(runs=2, experiments=1, models=0, recipes=3)
    return backups.back_up_servers(tmp_path / "recipes", figures, metadata_backup.tier_of(tiers), time.time())


@nightly
@needs_a_server
def test_a_backup_of_servers_is_restored_whole(tiers: Tiers, tmp_path: Path):
    backup_record = backed_up(tiers, tmp_path)
    sql("dagster", "DELETE FROM runs")
    sql("mlflow", "DROP TABLE experiments")
    done = metadata_restore.restore_servers(tiers, "ann", "", tmp_path)
    assert (done.folder, done.figures) == (backup_record.folder, backup_record.figures)
    assert (postgresql.rows_of("dagster", "runs"), postgresql.rows_of("mlflow", "experiments")) == (2, 1)


@nightly
@needs_a_server
def test_a_drill_puts_the_backup_into_the_database_for_drills(tiers: Tiers, tmp_path: Path):
    backup_record = backed_up(tiers, tmp_path)
    tier = FolderTier(tmp_path / "backup")
    assert (
        backups.restore(tier, backup_record.folder, backup_record.manifest, tmp_path / "drill") == backup_record.figures
    )
    assert postgresql.rows_of(postgresql.DRILL, "runs") == 2


@nightly
@needs_a_server
def test_a_drill_finds_rows_that_a_dump_lacks(tiers: Tiers, tmp_path: Path):
    sql("dagster", "DELETE FROM runs WHERE id = 1")
    backup_record = backed_up(tiers, tmp_path)
    with pytest.raises(ValueError, match="found 1 runs, expected 2 or more"):
        backups.restore(
            FolderTier(tmp_path / "backup"), backup_record.folder, backup_record.manifest, tmp_path / "drill"
        )


@nightly
@needs_a_server
def test_a_restore_is_refused_while_anybody_is_connected(tiers: Tiers, tmp_path: Path):
    backed_up(tiers, tmp_path)
    sql("dagster", "DELETE FROM runs")
    with (
        postgresql._connected("mlflow"),
        pytest.raises(ValueError, match="database mlflow: found 1 other connections, expected none"),
    ):
        metadata_restore.restore_servers(tiers, "ann", "", tmp_path)
    assert postgresql.rows_of("dagster", "runs") == 0


@nightly
@needs_a_server
def test_what_was_shown_since_the_backup_is_looked_at_again(tiers: Tiers, tmp_path: Path):
    store = homes.ended(homes.home(tmp_path / "home"), "small", "succeeded", "all steps", 10)
    backed_up(tiers, tmp_path)
    mark = store.folder / files.REPORTED / "incarnation-1"
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    assert metadata_restore.restore_servers(tiers, "ann", "", tmp_path).trainings == 1
    assert not mark.exists() and all_trainings(tiers).is_open(store.id, WorkQueue.RUN)


@nightly
@needs_a_server
def test_a_restore_that_is_killed_leaves_the_database_as_it_was(tiers: Tiers, tmp_path: Path):
    """The table is locked, so that the restore stands in the middle of its transaction when it is killed."""
    backed_up(tiers, tmp_path)
    sql("dagster", "INSERT INTO runs VALUES (3, 'new')")
    with postgresql._connected("dagster") as connection:
        connection.cursor().execute("LOCK TABLE runs IN ACCESS SHARE MODE")
        code = "import sys; from pathlib import Path; from slipway.resources import postgresql\n"
        code += "postgresql.restore('dagster', Path(sys.argv[1]))"
        [dump] = (tmp_path / "backup").rglob("dagster.dump")
        process = subprocess.Popen([sys.executable, "-c", code, str(dump)], start_new_session=True)
        while not waiting_for_a_lock(connection):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert postgresql.rows_of("dagster", "runs") == 3
    metadata_restore.restore_servers(tiers, "ann", "", tmp_path)
    assert postgresql.rows_of("dagster", "runs") == 2


def waiting_for_a_lock(connection: object) -> bool:
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])

"""MLflow's SQLite database: whole or not there, whenever the process that makes it is killed."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.resources import sqlite
from slipway.resources.mlflow import database as mlflow_database
from slipway.resources.mlflow.tracking import Tracking
from tests.conftest import Marked

LOOKS = """
import sys
from slipway.resources.mlflow.tracking import Tracking
print(len(Tracking(uri="sqlite:///" + sys.argv[1]).client().search_experiments()))
"""
DIES = """
import os, signal
from sqlalchemy import event
from sqlalchemy.engine import Engine

@event.listens_for(Engine, "before_cursor_execute")
def die(connection, cursor, statement, *rest):
    if statement.strip() == "DROP TABLE endpoints":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def started(code: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def experiments(path: Path) -> list[str]:
    return [experiment.name for experiment in Tracking(uri=f"sqlite:///{path}").client().search_experiments()]


def tables(path: Path) -> dict[str, list[str]]:
    """The columns of every table."""
    with sqlite.opened(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}


def older(path: Path) -> None:
    """Take a database back by the newest step of MLflow's."""
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config

    command.downgrade(_get_alembic_config(f"sqlite:///{path}"), "-1")


@pytest.mark.slow
def test_what_a_killed_process_began_two_others_finish_at_once(tmp_path: Path, marked: Marked):
    path = tmp_path / "home" / "mlflow.db"
    with started(DIES + LOOKS, path) as killed:
        assert killed.wait() == -9, killed.communicate()
    assert not path.exists()
    with started(LOOKS, path) as first, started(LOOKS, path) as second:
        outputs = [process.communicate() for process in (first, second)]
    assert [out for out, _ in outputs] == ["1\n", "1\n"], outputs
    assert not list((tmp_path / "home" / ".mlflow.db.making").iterdir())


def test_a_database_whose_making_was_interrupted_is_made_again(tmp_path: Path, database: Path):
    path = tmp_path / "mlflow.db"
    with sqlite.opened(path) as half:
        half.execute("CREATE TABLE endpoints (id)")
        half.execute("CREATE TABLE _alembic_tmp_endpoints (id)")
    assert experiments(path) == ["Default"]
    assert tables(path) == tables(database)


def test_an_older_database_is_changed_with_all_that_is_tracked_in_it(tmp_path: Path, database: Path):
    path = tmp_path / "mlflow.db"
    sqlite.copy(database, path)
    Tracking(uri=f"sqlite:///{path}").client().create_experiment("mine")
    older(path)
    assert mlflow_database.read(path).revision != mlflow_database.read(database).revision
    mlflow_database.make_ready(path)
    assert mlflow_database.read(path).revision == mlflow_database.read(database).revision
    assert experiments(path) == ["mine", "Default"]


def test_an_interrupted_change_of_tracked_runs_is_refused_and_touched_by_nobody(tmp_path: Path, database: Path):
    path = tmp_path / "mlflow.db"
    sqlite.copy(database, path)
    Tracking(uri=f"sqlite:///{path}").client().create_experiment("mine")
    with sqlite.opened(path) as connection:
        connection.execute("CREATE TABLE _alembic_tmp_endpoints (id)")
    was = path.read_bytes()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"a change of the table endpoints was interrupted.*slipway restore"):
            mlflow_database.make_ready(path)
    assert path.read_bytes() == was


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "mlflow.db").write_bytes(b"a note" * 100)
    with pytest.raises(ValueError, match=r"mlflow\.db: SQLite reports file is not a database"):
        mlflow_database.make_ready(tmp_path / "mlflow.db")


def test_a_database_that_cannot_be_read_is_not_made_again(tmp_path: Path, database: Path):
    path = tmp_path / "mlflow.db"
    sqlite.copy(database, path)
    with contextlib.closing(sqlite3.connect(path)) as other, pytest.MonkeyPatch.context() as patch:
        other.execute("BEGIN EXCLUSIVE")
        patch.setattr(sqlite, "BUSY_SECONDS", 0.1)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            mlflow_database.make_ready(path)

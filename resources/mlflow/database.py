"""MLflow's SQLite database: created and upgraded atomically.

MLflow creates its tables, and changes them after an update, in many steps that SQLite commits one by one. If a process
is killed between two steps, no later process can finish them ("table _alembic_tmp_endpoints already exists"). So one
process at a time does the steps in a copy, which then replaces the database by a rename. Every user of such a database
calls `make_ready` first.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from slipway.resources import sqlite
from slipway.resources.errors import Unavailable
from slipway.trainer.base import atomic, lock

URI = "sqlite:///"
MAKING_SECONDS = 300.0
"""How long another process may take to create or change the tables; usually seconds, on a busy machine a minute."""
HALF_CHANGED = "_alembic_tmp_"
"""The prefix of a table's name while a step copies it."""
OF_EVERY_ONE = {"alembic_version", "experiments", "workspaces"}
"""The tables that have exactly one row in a database without tracked runs."""


@dataclass(frozen=True)
class DatabaseContents:
    """The content of a file that should be MLflow's database."""

    revision: str
    """The revision of its tables; "" if their creation was not completed."""
    half_changed: str
    """A table whose change was interrupted, or ""."""
    tracks: bool
    """Whether it has tracked runs or other data."""


def make_ready(path: Path) -> None:
    """Create the database, or upgrade one of an older MLflow; does nothing if it is up to date.

    A database whose creation was interrupted is empty, and is created again. Raises Unavailable if another process
    takes too long, ValueError if the file is not a database or if an upgrade was interrupted in a database with tracked
    runs, and sqlite3.OperationalError if the file cannot be read.
    """
    if _is_whole(path):
        return
    aside = path.with_name(f".{path.name}.making")
    try:
        with lock.within(aside, MAKING_SECONDS):
            if not _is_whole(path):
                _make(path, aside)
    except lock.LockHeld as error:
        raise Unavailable(
            f"{path}: another process has been preparing it for {MAKING_SECONDS:.0f} s: {error}"
        ) from None


def read(path: Path) -> DatabaseContents:
    """The content of a file. Raises ValueError if it is not a database, and sqlite3.OperationalError."""
    try:
        with sqlite.opened(path) as connection:
            tables = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return DatabaseContents(
                _revision(connection) if "alembic_version" in tables else "",
                next((name for name in tables if name.startswith(HALF_CHANGED)), ""),
                any(_rows(connection, name) > (name in OF_EVERY_ONE) for name in tables),
            )
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path}: SQLite reports {error}; to restore the newest backup: slipway restore") from error


def _is_whole(path: Path) -> bool:
    from mlflow.store.db.utils import _get_latest_schema_revision

    if not path.exists():
        return False
    contents = read(path)
    return contents.revision == _get_latest_schema_revision() and not contents.half_changed


def _make(path: Path, aside: Path) -> None:
    """Create the database in the folder `aside`, and move it to its place."""
    new_database = aside / path.name
    for old in aside.iterdir():  # left behind by a killed process
        old.unlink()
    before = read(path) if path.exists() else None
    if before is not None and before.tracks:
        if before.half_changed:
            raise ValueError(
                f"{path}: a change of the table {before.half_changed.removeprefix(HALF_CHANGED)} was interrupted, and "
                "the database has tracked runs; to restore the newest backup: slipway restore"
            )
        sqlite.copy(path, new_database)
        _change(new_database)
    _fill(new_database, path.with_name("mlruns"))
    atomic.move(new_database, path)


def _change(database: Path) -> None:
    """Do the same as `mlflow db upgrade`."""
    from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine_with_retry

    engine = create_sqlalchemy_engine_with_retry(f"{URI}{database}")
    try:
        _upgrade_db(engine)
    finally:
        engine.dispose()


def _fill(database: Path, artifacts: Path) -> None:
    """Let MLflow create what is missing: its tables, and the default experiment."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"{URI}{database}", str(artifacts))
    # MLflow caches connections by the database's address, which the next call will use for another database.
    SqlAlchemyStore._engine_map.pop(store.db_uri, None)
    store.engine.dispose()


def _revision(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def _rows(connection: sqlite3.Connection, table: str) -> int:
    """The number of rows of a table, counted up to two."""
    [(rows,)] = connection.execute(f'SELECT count(*) FROM (SELECT 1 FROM "{table}" LIMIT 2)')
    return int(rows)

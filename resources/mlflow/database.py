"""MLflow's SQLite database: whole, or not there.

MLflow makes its tables, and changes them after an update of MLflow, in many steps that SQLite commits one by one. A
process that is killed between two of them leaves what no later process can finish ("table _alembic_tmp_endpoints
already exists"). So the steps are done beside the database, by one process at a time, and what they made takes its
place in one rename. Whoever uses such a database calls `make_ready` first.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from slipway.resources import sqlite
from slipway.resources.errors import Unavailable
from slipway.trainer.base import atomic, lock

URI = "sqlite:///"
MAKING_SECONDS = 300.0
"""How long another process may make or change the tables: some seconds, on a busy machine a minute."""
HALF_CHANGED = "_alembic_tmp_"
"""How a table is called while a step copies it."""
OF_EVERY_ONE = {"alembic_version", "experiments", "workspaces"}
"""The tables that have a row, and no more, in a database in which nothing was tracked."""


@dataclass(frozen=True)
class DatabaseContents:
    """What a file holds that should be MLflow's database."""

    revision: str
    """Of its tables; empty before the last step of making them."""
    half_changed: str
    """A table in which a step was interrupted, empty when there is none."""
    tracks: bool
    """Whether anything was tracked in it."""


def make_ready(path: Path) -> None:
    """Make the database, or change one of an older MLflow into one of this MLflow; nothing for one that is whole.

    A database whose making was interrupted holds nothing, and is made again. Raises Unavailable when another process
    takes too long over it, ValueError for a file that is no database or one whose change was interrupted with tracked
    runs in it, and sqlite3.OperationalError for a file that cannot be read.
    """
    if _is_whole(path):
        return
    aside = path.with_name(f".{path.name}.making")
    try:
        with lock.within(aside, MAKING_SECONDS):
            if not _is_whole(path):
                _make(path, aside)
    except lock.LockHeld as error:
        raise Unavailable(f"{path}: another process has made it for {MAKING_SECONDS:.0f} s: {error}") from None


def read(path: Path) -> DatabaseContents:
    """What a file holds. Raises ValueError for one that is no database, and sqlite3.OperationalError."""
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
        raise ValueError(f"{path}: SQLite finds {error}; to put the newest backup back: slipway restore") from error


def _is_whole(path: Path) -> bool:
    from mlflow.store.db.utils import _get_latest_schema_revision

    if not path.exists():
        return False
    contents = read(path)
    return contents.revision == _get_latest_schema_revision() and not contents.half_changed


def _make(path: Path, aside: Path) -> None:
    """Make the database in the folder `aside`, and put it in its place."""
    new_database = aside / path.name
    for old in aside.iterdir():  # of a process that was killed over it
        old.unlink()
    before = read(path) if path.exists() else None
    if before is not None and before.tracks:
        if before.half_changed:
            raise ValueError(
                f"{path}: a change of the table {before.half_changed.removeprefix(HALF_CHANGED)} was interrupted, and "
                "runs are tracked in it; to put the newest backup back: slipway restore"
            )
        sqlite.copy(path, new_database)
        _change(new_database)
    _fill(new_database, path.with_name("mlruns"))
    atomic.move(new_database, path)


def _change(database: Path) -> None:
    """What `mlflow db upgrade` does."""
    from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine_with_retry

    engine = create_sqlalchemy_engine_with_retry(f"{URI}{database}")
    try:
        _upgrade_db(engine)
    finally:
        engine.dispose()


def _fill(database: Path, artefacts: Path) -> None:
    """Have MLflow make what is missing: its tables, and the experiment that every database has."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"{URI}{database}", str(artefacts))
    # MLflow keeps its connections by the database's address, which is another one's the next time.
    SqlAlchemyStore._engine_map.pop(store.db_uri, None)
    store.engine.dispose()


def _revision(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def _rows(connection: sqlite3.Connection, table: str) -> int:
    """How many rows a table has, counted up to two."""
    [(rows,)] = connection.execute(f'SELECT count(*) FROM (SELECT 1 FROM "{table}" LIMIT 2)')
    return int(rows)

"""SQLite: a database that other processes may use meanwhile is opened, and copied consistently."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

BUSY_SECONDS = 30.0
"""How long another process may hold a database for itself."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database, made when it is missing, and closed afterwards. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def copy(source: Path, target: Path) -> None:
    """A consistent copy of a database that may be in use, also of one whose writer died. Raises sqlite3.Error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened(source) as original, opened(target) as copied:
        original.backup(copied)

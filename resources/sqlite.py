"""SQLite: open and consistently copy databases that other processes may be using."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

BUSY_SECONDS = 30.0
"""How long to wait for another process's lock."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a database, which is created if it is missing. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def copy(source: Path, target: Path) -> None:
    """Copy a database consistently, even while it is in use or after its writer died. Raises sqlite3.Error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened(source) as original, opened(target) as copied:
        original.backup(copied)

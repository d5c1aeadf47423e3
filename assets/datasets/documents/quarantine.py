"""Quarantine: what could not be read, and the message when that is more than a build may go on without.

A part that cannot be read counts as one document, whatever was lost with it: so files that broke off are counted too.
"""

import json
from pathlib import Path

import duckdb

from slipway.assets.datasets.reading.items import ADVICE, LOSES_THE_REST
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import atomic

DOCUMENTS = "SELECT count(*) FILTER (removed LIKE 'unreadable: %'), count(*) FROM live"
FILES = "SELECT count(DISTINCT name) FILTER (list_contains($lost, removed)), count(DISTINCT name) FROM live"
REASONS = """
    SELECT substr(removed, 13) AS reason, count(*) AS count, arg_min(name, row) FROM live
    WHERE removed LIKE 'unreadable: %' GROUP BY reason ORDER BY count DESC, reason LIMIT 5
"""
ALL = "SELECT name, number, substr(removed, 13) FROM live WHERE removed LIKE 'unreadable: %' ORDER BY row"
LISTED = 100_000
"""The most documents that are written down."""


def refuse(connection: duckdb.DuckDBPyConnection, recipe: DatasetRecipe, folder: Path, shop: Path) -> None:
    """Raise ValueError when more than the share `reading.quarantine` of the documents of `live` is unreadable, or of
    the files broke off.

    It has the reasons and some names; the first LISTED of all are in `unreadable.jsonl` of `folder`, the dataset's,
    until a build is not refused. `shop` is the dataset's workshop.
    """
    path, limit = folder / "unreadable.jsonl", recipe.reading.quarantine
    unreadable, rows = connection.execute(DOCUMENTS).fetchall()[0]
    broken = [f"unreadable: {reason}" for reason in sorted(LOSES_THE_REST)]
    lost, files = connection.execute(FILES, {"lost": broken}).fetchall()[0] if unreadable else (0, 0)
    if unreadable <= limit * rows and lost <= limit * files:
        path.unlink(missing_ok=True)
        return
    if unreadable > limit * rows:
        found = f"{unreadable} of {rows} documents cannot be read, {unreadable / rows:.1%}"
    else:
        found = f"{lost} of {files} files break off, and the rest of them is lost, {lost / files:.1%}"
    every = connection.execute(ALL).fetchmany(LISTED)
    lines = (json.dumps(dict(zip(("name", "number", "reason"), row, strict=True))) + "\n" for row in every)
    atomic.replace(path, "".join(lines).encode(), shop)
    raise ValueError(
        f"dataset {recipe.name}: {found}, expected at most {limit:.1%} (reading.quarantine): {_named(connection)}; "
        f"all of them: {path}"
    )


def _named(connection: duckdb.DuckDBPyConnection) -> str:
    """The most frequent reasons, with a name each and what to do."""
    return "; ".join(
        f"{reason} ({count}, such as {name}{': ' + ADVICE[reason] if reason in ADVICE else ''})"
        for reason, count, name in connection.execute(REASONS).fetchall()
    )

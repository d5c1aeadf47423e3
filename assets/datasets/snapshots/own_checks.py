"""A team's own checks: queries of a recipe over the documents table, each of which holds when it gives no row.

`documents` is the table of the new snapshot, `parent` that of the snapshot before it, which has no rows when there is
none. A query that cannot be answered is refused before anything is read. Of an answer, a million rows are counted at
most.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from slipway.assets.datasets.snapshots.outcomes import Outcome, table_of
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import user_queries
from slipway.trainer.data.shards import SnapshotManifest

SHOWN = 5
"""Rows of a query that are shown when its check fails."""
PREFIX = "sql_"
"""The beginning of the names of these checks, beside those that every dataset has."""


def described(recipe: DatasetRecipe) -> dict[str, str]:
    """What each of the recipe's own checks asks, by the check's name."""
    return {PREFIX + name: f"This gives no row: {query}" for name, query in recipe.checks.queries.items()}


def refuse_wrong(recipe: DatasetRecipe, table: pa.Schema) -> None:
    """Raise ValueError, naming the recipe's field, for a query that a table of these columns cannot answer."""
    for name, query in recipe.checks.queries.items():
        _asked(name, query, {"documents": None, "parent": None}, table)


def outcomes(
    recipe: DatasetRecipe, made: SnapshotManifest, parent: SnapshotManifest | None, durable: Path, table: pa.Schema
) -> list[Outcome]:
    """The outcomes of the recipe's own checks, in their order, with the first rows of those that fail."""
    before = None if parent is None else table_of(parent, durable)
    tables = {
        "documents": table_of(made, durable),
        "parent": before if before is not None and before.exists() else None,
    }
    found = [_asked(name, query, tables, table) for name, query in recipe.checks.queries.items()]
    return [Outcome(not rows, {"rows": rows, "first": first} if rows else {"rows": 0}) for rows, first in found]


def _asked(
    name: str, query: str, tables: Mapping[str, Path | None], columns: pa.Schema
) -> tuple[int, list[dict[str, str]]]:
    try:
        answer = user_queries.over_files(query, tables, columns, SHOWN)
    except ValueError as error:
        raise ValueError(f"checks.queries.{name}: {error}") from None
    return answer.found, [dict(zip(answer.columns, map(str, row), strict=True)) for row in answer.rows]

"""User queries: SQL that a person wrote, over rows or over Parquet files, within limits of memory, disk and rows.

It may read the tables that it is given and nothing else: no file, no network. It may take as long as it likes, and ends
when whoever waits for it is interrupted.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from slipway.resources import sql, warehouse

MEMORY = warehouse.MEMORY
"""What a query may use before it spills."""
DISK = "8GB"
"""What a query may spill to the disk."""
COUNTED = 1_000_000
"""Rows of an answer that are counted, at most."""
AT_ONCE = 10_000


class QueryAnswer(NamedTuple):
    """The names of the columns, the first rows, and how many rows there are: `COUNTED` for that many or more."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    row_count: int


def over_rows(
    text: str, columns: Mapping[str, Mapping[str, str]], rows: Mapping[str, Sequence[tuple[Any, ...]]], most: int
) -> QueryAnswer:
    """What a query gives over tables of these columns (by name, their types) and rows, with its first `most` rows.

    A TIMESTAMP is given in seconds since the epoch. Raises ValueError for a query that cannot be answered.
    """
    with _limited() as connection:
        for table, types in columns.items():
            fields = ", ".join(f"{name} {kind}" for name, kind in types.items())
            connection.execute(f"CREATE TABLE {table} ({fields})")
            placeholders = ", ".join(
                "make_timestamp((? * 1e6)::BIGINT)" if k == "TIMESTAMP" else "?" for k in types.values()
            )
            if rows[table]:
                connection.executemany(f"INSERT INTO {table} VALUES ({placeholders})", rows[table])
        return _answer(connection, text, most, most + 1, f"; the tables are {', '.join(columns)}")


def over_files(text: str, tables: Mapping[str, Path | None], columns: pa.Schema, most: int) -> QueryAnswer:
    """What a query gives over Parquet files by name, with its first `most` rows; None stands for a file of no rows.

    A column that a file does not have is null there: an older version wrote it. Raises ValueError for a query that
    cannot be answered.
    """
    with _limited() as connection:
        files = [str(file) for file in tables.values() if file is not None]
        connection.execute(f"SET allowed_paths = {sql.literals(files)}")
        connection.register("_columns", columns.empty_table())
        for name, file in tables.items():
            rows_of = "" if file is None else f"UNION ALL BY NAME FROM read_parquet({sql.literal(str(file))})"
            connection.execute(f"CREATE VIEW {name} AS FROM _columns {rows_of}")
        return _answer(connection, text, most, COUNTED, "")


@contextlib.contextmanager
def _limited() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse.connect(memory=MEMORY) as connection:
        connection.execute(f"SET max_temp_directory_size = '{DISK}'")
        connection.execute("SET preserve_insertion_order = true")  # the first rows are the first of the tables
        yield connection


def _answer(connection: duckdb.DuckDBPyConnection, text: str, most: int, counted: int, tables: str) -> QueryAnswer:
    """What the query gives; the rows after the first `counted` are not asked for."""
    connection.execute("SET enable_external_access = false")

    try:
        _require_select(connection, text)
        result = connection.execute(text)
        first = result.fetchmany(most)
        row_count = len(first)
        while row_count < counted and (more := result.fetchmany(min(AT_ONCE, counted - row_count))):
            row_count += len(more)
        return QueryAnswer([name for name, *_ in result.description or ()], [tuple(row) for row in first], row_count)
    except duckdb.InterruptException:
        raise
    except duckdb.OutOfMemoryException as error:
        limits = f"it may use {MEMORY} of memory and {DISK} of disk; ask for fewer rows or shorter values"
        raise ValueError(f"query {text!r}: {str(error).splitlines()[0]}; {limits}") from None
    except duckdb.Error as error:
        known = tables if isinstance(error, duckdb.CatalogException) else ""
        raise ValueError(f"query {text!r}: {str(error).splitlines()[0]}{known}") from None


def _require_select(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Refuse anything but one query that reads. Raises ValueError, and duckdb.Error for what is no SQL."""
    statements = [statement.type.name for statement in connection.extract_statements(text)]
    if statements != ["SELECT"]:
        listed = ", then ".join(statement.replace("_", " ") for statement in statements) or "no statement"
        raise ValueError(f"query {text!r}: found {listed}, expected one SELECT: nothing is changed by a query")

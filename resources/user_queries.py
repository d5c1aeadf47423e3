"""User queries: SQL that a person wrote, over rows or Parquet files, with limits on memory, disk and rows.

A query can read only the given tables: no file, no network. It has no time limit, but ends when the caller is
interrupted.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from slipway.resources import sql, warehouse

MEMORY = warehouse.MEMORY
"""The memory that a query may use before it spills to disk."""
DISK = "8GB"
"""The disk space that a query may use."""
COUNTED = 1_000_000
"""The maximum number of rows of an answer that are counted."""
AT_ONCE = 10_000


class QueryAnswer(NamedTuple):
    """The names of the columns, the first rows, and the number of rows; `COUNTED` means that many or more."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    row_count: int


def over_rows(
    text: str, columns: Mapping[str, Mapping[str, str]], rows: Mapping[str, Sequence[tuple[Any, ...]]], most: int
) -> QueryAnswer:
    """The answer of a query over tables with these columns (name to type) and rows, with its first `most` rows.

    A TIMESTAMP in `rows` is in seconds since the epoch. Raises ValueError if the query cannot be answered.
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
    """The answer of a query over named Parquet files, with its first `most` rows; None stands for an empty table.

    A column that a file lacks, because an older version wrote it, is null. Raises ValueError if the query cannot be
    answered.
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
        connection.execute("SET preserve_insertion_order = true")  # so that the first rows come from the first tables
        yield connection


def _answer(connection: duckdb.DuckDBPyConnection, text: str, most: int, counted: int, tables: str) -> QueryAnswer:
    """The answer of the query; rows after the first `counted` are not fetched."""
    connection.execute("SET enable_external_access = false")

    try:
        _require_select(connection, text)
        result = connection.execute(text)
        first = result.fetchmany(most)
        row_count = len(first)
        while row_count < counted:
            more = result.fetchmany(min(AT_ONCE, counted - row_count))
            if not more:
                break
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
    """Reject anything but a single SELECT. Raises ValueError, and duckdb.Error for invalid SQL."""
    statements = [statement.type.name for statement in connection.extract_statements(text)]
    if statements != ["SELECT"]:
        listed = ", then ".join(statement.replace("_", " ") for statement in statements) or "no statement"
        raise ValueError(f"query {text!r}: found {listed}, expected one SELECT: a query cannot change anything")

"""Warehouse: SQL over documents tables, in the process, with duckdb reading the Parquet file itself.

Everything comes back as plain values; nothing is kept between questions, so there is no server and no state.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

SPLITS = "SELECT split, count(*), sum(bytes) FROM read_parquet($table) GROUP BY split ORDER BY split"
PACKAGES = """
    SELECT package, count(*), sum(bytes) FROM read_parquet($table)
    GROUP BY package ORDER BY sum(bytes) DESC, package LIMIT $packages
"""
LENGTHS = """
    SELECT CAST(2 ** floor(log2(bytes)) AS BIGINT) AS shortest, count(*) FROM read_parquet($table)
    GROUP BY shortest ORDER BY shortest
"""
DUPLICATES = "SELECT CAST(decode(value) AS BIGINT) FROM parquet_kv_metadata($table) WHERE decode(key) = $key"


@dataclass(frozen=True)
class Total:
    """Documents and bytes of text under one heading."""

    name: str
    documents: int
    bytes: int


@dataclass(frozen=True)
class Statistics:
    """What a documents table holds."""

    rows: int
    bytes: int
    splits: tuple[Total, ...]
    packages: tuple[Total, ...]
    """The largest packages by bytes."""
    lengths: tuple[tuple[int, int], ...]
    """Documents by length: (bytes from which a bin counts, a power of two; documents up to twice that)."""
    duplicates: int
    """Documents that were left out because their text was there already."""


def statistics(table: Path, packages: int = 10) -> Statistics:
    """Statistics of a documents table. Raises duckdb.Error for a file that is no such table."""
    with duckdb.connect() as connection:

        def ask(query: str, **values: Any) -> list[tuple[Any, ...]]:
            return list(connection.execute(query, {"table": str(table), **values}).fetchall())

        splits = tuple(Total(*row) for row in ask(SPLITS))
        return Statistics(
            rows=sum(split.documents for split in splits),
            bytes=sum(split.bytes for split in splits),
            splits=splits,
            packages=tuple(Total(*row) for row in ask(PACKAGES, packages=packages)),
            lengths=tuple((shortest, count) for shortest, count in ask(LENGTHS)),
            duplicates=ask(DUPLICATES, key="slipway.duplicates")[0][0],
        )

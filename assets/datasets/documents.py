"""Documents: the table of all documents of a dataset and what became of each, named by the BLAKE3 of the file.

It holds no texts: kept documents are in the snapshot's shards, in the order of this table. Documents are
compared here, each with all others: equal ones, nearly equal ones, and training documents that share a passage
with what models are measured on. It is done by duckdb in bounded memory, which spills to disk.
"""

import contextlib
import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assets.datasets import comparison, extraction, workers
from assets.datasets.extraction import Extracts
from assets.datasets.workshop import deliver, writing
from recipes.dataset import Dataset
from trainer import digest

VERSION = "2"
"""Of the code below: raised when the same extracts would give another table."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("language", pa.string()),
        pa.field("package", pa.string(), nullable=False),
        pa.field("masked", pa.int32(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("removed", pa.string()),
    ]
)
COLUMNS = {
    "name": "the file it comes from, relative to the source",
    "number": "its place in that file, from 0",
    "blake3": "hash of the cleaned text: decides its split; none for what could not be read",
    "bytes": "length of the cleaned text in UTF-8",
    "language": "of the text, or of the source code by its suffix",
    "package": "top-level part of the name",
    "masked": "places that were replaced by a placeholder",
    "split": "train or validation; none for a document that was left out",
    "removed": "why it was left out; none for a document that is kept",
}
SPLITS = ("train", "validation")
ROWS_AT_ONCE = 65_536
MEMORY = "512MB"
"""What duckdb may use before it spills."""
THREADS = 4
"""Its threads share that memory; with less than some 64 MB each it gives up instead of spilling."""

LIVE = """
    CREATE TABLE live AS
    SELECT row_number() OVER (ORDER BY d.file, d.number) - 1 AS row, e.segment, d.place, d.file AS name, d.number,
           d.blake3, d.bytes, {own}, d.removed,
           CASE WHEN substr(d.blake3, 1, 13) < $held_out THEN 'validation' ELSE 'train' END AS split
    FROM (
        SELECT *, file_row_number AS place
        FROM read_parquet($segments, filename = 'segment_file', file_row_number = true)
    ) d
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
"""
OWN = "d.language, d.masked, split_part(d.file, '/', 1) AS package"
"""Columns that tables of texts alone have."""
EQUAL = """
    UPDATE live SET removed = 'exact_duplicate' FROM (
        SELECT row, row_number() OVER (PARTITION BY blake3 ORDER BY row) AS copy FROM live WHERE removed IS NULL
    ) copies
    WHERE copies.row = live.row AND copies.copy > 1
"""
TABLE = """
    SELECT {columns} FROM (SELECT * REPLACE (CASE WHEN removed IS NULL THEN split END AS split) FROM live) ORDER BY row
"""
UNREADABLE_SHARE = "SELECT count(*) FILTER (removed LIKE 'unreadable: %'), count(*) FROM live"
REASONS = """
    SELECT substr(removed, 13) AS reason, count(*) AS count, arg_min(name, row) FROM live
    WHERE removed LIKE 'unreadable: %' GROUP BY reason ORDER BY count DESC, reason LIMIT 5
"""


@dataclass(frozen=True)
class Documents:
    """A documents table: the BLAKE3 of its file, its rows, and how many of them are kept."""

    blake3: str
    rows: int
    kept: int


def table_path(durable: Path, blake3: str) -> Path:
    return durable / "documents" / f"{blake3}.parquet"


def write(recipe: Dataset, extracts: Extracts, durable: Path, shop: Path) -> Documents:
    """Compare all documents and write the table; equal extracts give equal bytes.

    `shop` is the dataset's workshop. Raises ValueError when more documents were unreadable than the recipe's
    `reading.quarantine` allows; then no table is written.
    """
    with opened(recipe, extracts, durable, shop, OWN) as connection:
        segments = [str(path) for path in extraction.segments(extracts.index, durable)]
        comparison.remove_near_duplicates(connection, recipe.cleaning, segments)
        memory = durable / "datasets" / recipe.name / "verdicts.json"
        comparison.remove_contaminated(connection, recipe.cleaning, segments, memory, shop)
        return leave(connection, SCHEMA, durable, shop)


@contextlib.contextmanager
def opened(
    recipe: Dataset, extracts: Extracts, durable: Path, shop: Path, own: str
) -> Iterator[duckdb.DuckDBPyConnection]:
    """All documents as the table `live`, in their order, equal ones marked; `own` are a kind's own columns in SQL.

    Raises ValueError as `write` does.
    """
    with connect(shop) as connection:
        segments = [str(path) for path in extraction.segments(extracts.index, durable)]
        held_out = held_out_below(recipe.split.validation)
        values = {"segments": segments, "index": str(extracts.index), "held_out": held_out}
        connection.execute(LIVE.format(own=own), values)
        _refuse_too_many_unreadable(connection, recipe)
        connection.execute(EQUAL)
        yield connection


def leave(connection: duckdb.DuckDBPyConnection, schema: pa.Schema, durable: Path, shop: Path) -> Documents:
    """Write the columns of `live` that are in the schema as a documents table of the durable tier."""
    made = shop / "documents.parquet"
    rows, kept = _write_table(connection, schema, made)
    blake3 = digest.of_file(made)
    deliver(made, table_path(durable, blake3))
    return Documents(blake3, rows, kept)


@contextlib.contextmanager
def connect(shop: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A duckdb whose memory is bounded and whose overflow lies in the workshop; OSError when it has no room there."""
    spill = shop / "spill"
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        connection.execute("SET temp_directory = ?", [str(spill)])
        connection.execute(f"SET threads = {min(THREADS, workers.available())}")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET enable_progress_bar = false")
        try:
            yield connection
        except duckdb.OutOfMemoryException as error:
            # By default duckdb's limit on what it spills is the space that the disk has left.
            if "max_temp_directory_size" not in str(error):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(spill)) from error


def held_out_below(validation: float) -> str:
    """The first 13 hex digits from which a document is for training: its split is decided by its hash alone.

    13 digits are 52 bits, which a double holds exactly; so a larger share only adds documents to validation,
    and none ever moves because others joined or left.
    """
    return f"{min(ceil(validation * 2**52), 2**52 - 1):013x}"


def splits_of(path: Path, hashes: Collection[str]) -> dict[str, str]:
    """The split of those of the given texts that a table keeps, by their hash."""
    wanted = (pc.field("blake3").isin(list(hashes))) & pc.field("removed").is_null()
    columns = pq.read_table(path, columns=["blake3", "split"], filters=wanted)
    return dict(zip(columns["blake3"].to_pylist(), columns["split"].to_pylist(), strict=True))


def _refuse_too_many_unreadable(connection: duckdb.DuckDBPyConnection, recipe: Dataset) -> None:
    """Raise ValueError, with the reasons and some names, when more is unreadable than the recipe allows."""
    found = connection.execute(UNREADABLE_SHARE).fetchone()
    assert found is not None
    unreadable, rows = found
    if unreadable <= recipe.reading.quarantine * rows:
        return
    named = "; ".join(
        f"{reason} ({count}, such as {name})" for reason, count, name in connection.execute(REASONS).fetchall()
    )
    raise ValueError(
        f"dataset {recipe.name}: {unreadable} of {rows} documents cannot be read, {unreadable / rows:.1%}, "
        f"expected at most {recipe.reading.quarantine:.1%} (reading.quarantine): {named}"
    )


def _write_table(connection: duckdb.DuckDBPyConnection, schema: pa.Schema, path: Path) -> tuple[int, int]:
    """Write the rows of `live` in their order; gives how many there are, and how many are kept."""
    rows = kept = 0
    query = TABLE.format(columns=", ".join(schema.names))
    with writing(path), pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in connection.sql(query).to_arrow_reader(ROWS_AT_ONCE):
            table = pa.Table.from_batches([batch]).cast(schema)
            writer.write_table(table)
            rows, kept = rows + table.num_rows, kept + table["removed"].null_count
    return rows, kept

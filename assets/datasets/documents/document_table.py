"""The documents table: all documents of a dataset with the decision on each. The BLAKE3 of the file is its name.

It contains no texts and no pixels: kept documents are in the snapshot's shards, in the order of this table. Here every
document is compared with all others, by duckdb, in bounded memory with spilling to disk.
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

from slipway.assets.datasets.building import heap, workers
from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.build_log import logged_query
from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.documents import held_out, quarantine, takedowns
from slipway.assets.datasets.documents.extracts import Extracts, segments
from slipway.resources import sql, warehouse
from slipway.trainer.base import atomic, verify

SPLITS = ("train", "validation")
ROWS_AT_ONCE = 65_536
"""The rows of a row group of the table."""
GROUPS_AT_ONCE = 8
MEMORY = warehouse.MEMORY
THREADS = warehouse.THREADS

LIVE = """
    CREATE TABLE live AS
    WITH documents AS (
        SELECT *, file_row_number AS place, parse_filename(segment_file, true) AS segment
        FROM read_parquet($segments, filename = 'segment_file', file_row_number = true)
    ), files AS (
        SELECT e.name, e.segment, min(d.place) AS first, sum(count(*)) OVER (ORDER BY e.name) - count(*) AS before
        FROM read_parquet($index) e JOIN documents d ON d.file = e.name AND d.segment = e.segment
        GROUP BY e.name, e.segment
    )
    SELECT CAST(files.before + d.place - files.first AS BIGINT) AS row, d.segment, d.place, d.file AS name, d.number,
           d.blake3, d.bytes, {identity} AS identity, {own}, d.removed, CAST(NULL AS VARCHAR) AS because,
           CASE WHEN substr({identity}, 1, 13) < $held_out THEN 'validation' ELSE 'train' END AS split
    FROM documents d JOIN files ON d.file = files.name AND d.segment = files.segment
"""
"""Rows are in the order of files' names and of documents' numbers. A segment has the documents of a file one after the
other in that order, so files alone are sorted: sorting the documents takes three times as long."""
EQUAL = """
    UPDATE live SET removed = 'exact_duplicate', because = first FROM (
        SELECT row, row_number() OVER copies AS copy, first_value(name || '#' || number) OVER copies AS first
        FROM live WHERE removed IS NULL
        WINDOW copies AS (PARTITION BY blake3 ORDER BY split = 'validation' DESC, {order})
    ) copies
    WHERE copies.row = live.row AND copies.copy > 1
"""
PART = """
    CREATE OR REPLACE TEMP VIEW part AS
    SELECT *, file_row_number AS row FROM read_parquet({table}, file_row_number = true)
    WHERE file_row_number >= {begin} AND file_row_number < {end}
"""
"""duckdb reads only the row groups of these rows."""
TABLE = """
    SELECT {columns} FROM (SELECT * REPLACE (CASE WHEN removed IS NULL THEN split END AS split) FROM live)
    WHERE row >= $begin AND row < $end ORDER BY row
"""


@dataclass(frozen=True)
class DocumentTable:
    """A documents table: the BLAKE3 of its file, its rows, and how many of them are kept."""

    blake3: str
    rows: int
    kept_rows: int


def path(durable: Path, blake3: str) -> Path:
    return durable / "documents" / f"{blake3}.parquet"


def write(build: Build, extracts: Extracts) -> DocumentTable:
    """Compare all documents and write the table; equal extracts give equal bytes.

    Raises ValueError, and writes no table, if more is unreadable than the recipe's `reading.quarantine` allows.
    """
    recipe = build.recipe
    kind = build.kind
    durable = build.durable
    file = build.scratch / "documents.parquet"
    with connect(build.scratch) as connection:
        paths = [str(segment) for segment in segments(extracts.index, durable)]
        values = {"segments": paths, "index": str(extracts.index), "held_out": held_out_below(recipe.split.validation)}
        with logged_query(connection, build.log, "listing the documents"):
            connection.execute(LIVE.format(own=kind.own_columns, identity=kind.identity), values)
        quarantine.refuse(build, connection)
        takedowns.remove(connection, takedowns.read(durable, recipe.name), "url" in kind.table.names)
        held_out.mark(build, connection)
        with logged_query(connection, build.log, "comparing equal documents"):
            connection.execute(EQUAL.format(order=kind.kept_first(recipe)))
        kind.compare(build, connection, paths)
        with logged_query(connection, build.log, "writing the documents table"):
            rows, remaining = write_rows(connection, kind.table, file)
    blake3 = verify.measure(file).blake3
    atomic.move(file, path(durable, blake3))
    return DocumentTable(blake3, rows, remaining)


@contextlib.contextmanager
def connect(scratch: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A duckdb with bounded memory that spills to the scratch folder. Raises OSError when the disk there is full.

    Each step has a connection of its own and closes it before other work begins: a connection keeps up to 100 MB of
    what its queries took, and returns it to the system when it is closed.
    """
    spill = scratch / "spill"
    with heap.trimmed(), warehouse.connect(spill, MEMORY, min(THREADS, workers.available())) as connection:
        connection.execute("SET TimeZone = 'UTC'")  # of dates without one, on every machine
        try:
            yield connection
        except duckdb.OutOfMemoryException as error:
            # By default duckdb's limit on what it spills is the space that the disk has left.
            if "max_temp_directory_size" not in str(error):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(spill)) from error


def held_out_below(validation: float) -> str:
    """The 13 hex digits below which the identity of a validation document begins: that alone decides a document's
    split.

    13 digits are 52 bits, which a double represents exactly; so a larger share only adds documents to validation, and
    no document changes its split because others are added or removed.
    """
    return f"{min(ceil(validation * 2**52), 2**52 - 1):013x}"


def parts(connection: duckdb.DuckDBPyConnection, table: Path) -> Iterator[int]:
    """Let the view `part` of a connection be the rows of a table in their order, half a million at a time, with the
    place of each as `row`; gives the number of each part.

    For joins with as many rows again: duckdb holds one side of a join in memory, and fails where that is too large for
    it, as it is for some ten million documents. duckdb itself reads the rows from the file: half a million rows in
    Arrow's memory take 60 to 90 MB that no limit of duckdb bounds.
    """
    metadata = pq.read_metadata(table)
    group_rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    begin = 0
    for number, first in enumerate(range(0, len(group_rows), GROUPS_AT_ONCE)):
        end = begin + sum(group_rows[first : first + GROUPS_AT_ONCE])
        connection.execute(PART.format(table=sql.literal(str(table)), begin=begin, end=end))
        yield number
        begin = end


def splits_of(table: Path, hashes: Collection[str]) -> dict[str, str]:
    """The splits, by hash, of those of the given texts that a table keeps."""
    # An array with its type: of no hashes, a list would be one of nulls, which is compared with no string.
    in_split = pc.field("blake3").isin(pa.array(hashes, pa.string())) & pc.field("removed").is_null()
    columns = pq.read_table(table, columns=["blake3", "split"], filters=in_split)
    return dict(zip(columns["blake3"].to_pylist(), columns["split"].to_pylist(), strict=True))


def write_rows(connection: duckdb.DuckDBPyConnection, schema: pa.Schema, target: Path) -> tuple[int, int]:
    """Write the rows of `live` in their order; returns how many rows there are, and how many are kept.

    Some at a time, because duckdb cannot sort all of some ten millions in the memory that it may have.
    """
    ((rows,),) = connection.sql("SELECT count(*) FROM live").fetchall()
    query = TABLE.format(columns=", ".join(schema.names))
    remaining = 0
    with writing(target), pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for begin in range(0, rows, ROWS_AT_ONCE):
            bounds = {"begin": begin, "end": begin + ROWS_AT_ONCE}
            some = connection.sql(query, params=bounds).to_arrow_table().cast(schema)
            writer.write_table(some.combine_chunks())
            remaining += some["removed"].null_count
    return rows, remaining

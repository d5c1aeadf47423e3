"""A Parquet file: a document a row, whose text stands in a column."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assets.datasets.reading import limits
from assets.datasets.reading.compression import made_by_arrow
from assets.datasets.reading.items import Reason, Text, Unfit
from recipes.dataset import Reading

MAGIC = b"PAR1"
PAGE_BUFFER = 1 << 20
"""Bytes of a column that are read from the file at a time."""
BATCH_BYTES, BATCH_ROWS = 2_000_000, 1024


def read(stream: BinaryIO, reading: Reading) -> Iterator[Text | Unfit]:
    """A document a row, some rows in memory at a time; `text_field` may lead into structs by dots.

    A file without its end has no rows: Parquet says at the end where they are. Rows before a damaged page are
    given. A value is in memory before its length is known, and so are the page and the dictionary it lies in.
    """
    number = 0
    try:
        with pq.ParquetFile(stream, pre_buffer=False, buffer_size=PAGE_BUFFER) as file:
            for value in _values(file, reading.text_field):
                yield limits.document(number, value, limits.text_bytes(reading))
                number += 1
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and not made_by_arrow(error):
            raise
        yield Unfit(number, _damage(stream))


def _values(file: pq.ParquetFile, field: str) -> Iterator[object]:
    """The values of the text column; None in every row where there is no such column."""
    if not any(name == field or name.startswith(field + ".") for name in _leaves(file)):
        yield from (None for _ in range(file.metadata.num_rows))
        return
    for group in range(file.num_row_groups):
        rows = _rows_at_once(file, group, field)
        for batch in file.iter_batches(rows, row_groups=[group], columns=[field]):
            yield from map(_value, _column(batch, field.split(".")))


def _leaves(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(index).path for index in range(len(file.schema))]


def _rows_at_once(file: pq.ParquetFile, group: int, field: str) -> int:
    """As many rows as hold about `BATCH_BYTES` of text, by what the file says of this row group."""
    described = file.metadata.row_group(group)
    size = sum(
        described.column(index).total_uncompressed_size
        for index in range(described.num_columns)
        if described.column(index).path_in_schema == field
    )
    rows: int = BATCH_BYTES * described.num_rows // max(1, size)
    return max(1, min(BATCH_ROWS, rows))


def _column(batch: pa.RecordBatch, path: list[str]) -> Any:
    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _value(scalar: Any) -> object:
    """A text, its bytes where they are not UTF-8, or anything else where the column holds no texts."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return error.object


def _damage(stream: BinaryIO) -> Reason:
    """A file that begins as Parquet and does not end so was cut."""
    stream.seek(0)
    begins = stream.read(len(MAGIC)) == MAGIC
    stream.seek(-len(MAGIC), 2)
    return "truncated" if begins and stream.read(len(MAGIC)) != MAGIC else "malformed Parquet"

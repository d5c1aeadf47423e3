"""Parquet files: each row is a document, with its text, or its image and label, in columns."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slipway.assets.datasets.reading.compression import made_by_content
from slipway.assets.datasets.reading.document import Reason, Text, UnfitDocument, about, document_of, longest_text
from slipway.recipes.dataset import ReadingSection

MAGIC = b"PAR1"
PAGE_BUFFER = 1 << 20
"""Bytes of a column to read from the file together."""
BATCH_BYTES = 2_000_000
BATCH_ROWS = 1024


Document = TypeVar("Document")


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The texts of the column `text_field`, with their metadata from other columns. Raises as `rows` does."""
    limit = longest_text(reading)
    named = reading.metadata
    beside = [field for field in dict.fromkeys((named.url, named.license, named.date)) if field]

    def document(number: int, text: Any, *values: Any) -> Text | UnfitDocument:
        value_of = dict(zip(beside, map(_value, values), strict=True)).get
        return document_of(number, _value(text), limit, about=about(reading, value_of))

    return rows(stream, [reading.text_field, *beside], document)


def rows(
    stream: BinaryIO, fields: Sequence[str], document: Callable[..., Document | UnfitDocument]
) -> Iterator[Document | UnfitDocument]:
    """The documents that `document` makes from the number and the fields of each row, with some rows in memory at once.

    Dots in a field lead into structs. A field is a scalar of Arrow, or None when the file has no such column. A
    file without its end has no rows, because its index is at the end. Rows before a damaged page are given. A value
    is in memory before its length is known, and so are its page and its dictionary.
    """
    number = 0
    try:
        with pq.ParquetFile(stream, pre_buffer=False, buffer_size=PAGE_BUFFER) as file:
            for row in _rows(file, fields):
                yield document(number, *row)
                number += 1
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and not made_by_content(error):
            raise
        yield UnfitDocument(number, _damage(stream))


def _rows(file: pq.ParquetFile, fields: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The fields of each row."""
    there = [field for field in fields if _leaves(file.schema, field)]
    if not there:
        yield from ((None,) * len(fields) for _ in range(file.metadata.num_rows))
        return
    for group in range(file.num_row_groups):
        at_once = _rows_at_once(file, group, there)
        for batch in file.iter_batches(at_once, row_groups=[group], columns=there):
            nothing = [None] * batch.num_rows
            columns = [_column(batch, field) if field in there else nothing for field in fields]
            yield from zip(*columns, strict=True)


def _leaves(schema: Any, field: str) -> list[int]:
    """The numbers of the file's columns that belong to a field."""
    paths = ((index, schema.column(index).path) for index in range(len(schema)))
    return [index for index, path in paths if path == field or path.startswith(field + ".")]


def _rows_at_once(file: pq.ParquetFile, group: int, fields: Sequence[str]) -> int:
    """The number of rows with about `BATCH_BYTES` of these fields, by the sizes that the file gives for this row
    group."""
    described = file.metadata.row_group(group)
    leaves = [index for field in fields for index in _leaves(file.schema, field)]
    size = sum(described.column(index).total_uncompressed_size for index in leaves)
    rows: int = BATCH_BYTES * described.num_rows // max(1, size)
    return max(1, min(BATCH_ROWS, rows))


def _column(batch: pa.RecordBatch, field: str) -> Any:
    """The values of a field; nothing for one that leads into a list or a map. The name of a column may have dots.

    Raises ArrowInvalid for two columns of one name.
    """
    name, *inner = [field] if field in batch.schema.names else field.split(".")
    if batch.schema.names.count(name) != 1:
        raise pa.ArrowInvalid(f"{batch.schema.names.count(name)} columns with the name {name}")
    column = batch.column(name)
    for name in inner:
        if not pa.types.is_struct(column.type):
            return [None] * batch.num_rows
        column = pc.struct_field(column, name)
    return column


def _value(scalar: Any) -> object:
    """The value of a scalar: a text, bytes that are not UTF-8, or a value that is no text. None too for what Python
    has no value for, such as a date after the year 9999 or a time in a zone that nobody knows."""
    try:
        return None if scalar is None else scalar.as_py()
    except UnicodeDecodeError as error:
        return error.object
    except (ArithmeticError, LookupError, ValueError):
        return None


def _damage(stream: BinaryIO) -> Reason:
    """The reason why a file is unreadable: a file that begins but does not end as Parquet was truncated."""
    stream.seek(0)
    begins = stream.read(len(MAGIC)) == MAGIC
    stream.seek(-len(MAGIC), 2)
    if begins and stream.read(len(MAGIC)) != MAGIC:
        return "truncated"
    return "malformed Parquet"

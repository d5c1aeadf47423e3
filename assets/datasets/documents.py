"""Documents: the table of a dataset's texts, in Parquet, named by the BLAKE3 of the file.

A document's split is decided by the hash of its text alone: it stays where it is whatever joins or leaves the
corpus, and a text that occurs twice cannot stand on both sides.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assets.datasets.sources import Source, SourceFile
from trainer import atomic, digest

VERSION = "1"
"""Of the code below: raised when the same source would give another table."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("package", pa.string(), nullable=False),
    ]
)
COLUMNS = {
    "name": "where the document comes from, relative to the source",
    "text": "the whole document",
    "bytes": "length of the text in UTF-8",
    "blake3": "hash of the text: decides its split, its shard and its place there",
    "split": "train or validation",
    "package": "top-level part of the name",
}
ROWS_AT_ONCE = 1024
DUPLICATES = b"slipway.duplicates"
"""Key in the file's metadata: how many documents were dropped because their text was there already."""


@dataclass(frozen=True)
class Documents:
    """A documents table: its file's BLAKE3 and bytes, and what it holds."""

    blake3: str
    file_bytes: int
    rows: int
    duplicates: int


def table_path(durable: Path, blake3: str) -> Path:
    return durable / "documents" / f"{blake3}.parquet"


def write(source: Source, validation: float, durable: Path) -> Documents:
    """Write the table of a source with about the share `validation` (0 to 1) of documents held out.

    The first of equal texts, by name, is kept. Equal sources give equal bytes. Raises ValueError for a file that
    changed since it was listed; then nothing is left behind.
    """
    folder = durable / "documents"
    folder.mkdir(parents=True, exist_ok=True)
    unique = {file.blake3: file for file in reversed(source.files)}
    kept = [file for file in source.files if unique[file.blake3] is file]
    descriptor, name = tempfile.mkstemp(prefix=".table.", suffix=".tmp", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_table(file, kept, validation, duplicates=len(source.files) - len(kept))
            file.flush()
            os.fsync(file.fileno())
        documents = Documents(
            digest.of_file(temporary), temporary.stat().st_size, len(kept), len(source.files) - len(kept)
        )
        temporary.chmod(0o644)
        temporary.replace(table_path(durable, documents.blake3))
    finally:
        temporary.unlink(missing_ok=True)
    atomic.sync_folder(folder)
    return documents


def split_of(blake3: str, validation: float) -> str:
    """The split of a document by the first 52 bits of its hash: a larger share only adds to validation.

    52 bits divide exactly in a double. Shards are chosen by other bits, so the two choices are independent.
    """
    return "validation" if int(blake3[:13], 16) / 2**52 < validation else "train"


def read(path: Path, split: str) -> pa.Table:
    """The rows of one split, in the order of their names."""
    return pq.read_table(path, filters=[("split", "==", split)])


def texts(path: Path, split: str) -> Iterator[str]:
    """The texts of one split, read some rows at a time."""
    for batch in pq.ParquetFile(path).iter_batches(ROWS_AT_ONCE, columns=["text", "split"]):
        yield from (row["text"] for row in batch.to_pylist() if row["split"] == split)


def hashes(path: Path) -> dict[str, str]:
    """The split of each document by its hash."""
    columns = pq.read_table(path, columns=["blake3", "split"]).to_pydict()
    return dict(zip(columns["blake3"], columns["split"], strict=True))


def _write_table(file: Any, kept: list[SourceFile], validation: float, duplicates: int) -> None:
    remaining = iter(kept)
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        while chunk := list(itertools.islice(remaining, ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_pylist([_row(each, validation) for each in chunk], SCHEMA))
        writer.add_key_value_metadata({DUPLICATES: str(duplicates).encode()})


def _row(file: SourceFile, validation: float) -> dict[str, Any]:
    data = file.path.read_bytes()
    if digest.of_bytes(data) != file.blake3:
        raise ValueError(f"{file.path}: changed while the corpus was being read: try again when nobody writes there")
    return {
        "name": file.name,
        "text": data.decode(),
        "bytes": len(data),
        "blake3": file.blake3,
        "split": split_of(file.blake3, validation),
        "package": file.name.split("/")[0],
    }

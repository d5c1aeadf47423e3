"""Extracts: where the documents of a source's files are kept. An index has one row a file and names its segment.

Segments are Parquet files, a cache of what was read and cleaned: how files are grouped in them changes no result.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assets.datasets.building.workshop import writing
from trainer.base import atomic, digest, parsing, verify

INDEX = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
    ]
)
KEY = b"slipway.extraction"
"""In the metadata of an index: the hash of everything but the files that decided what it leads to."""


@dataclass(frozen=True)
class Extracts:
    """The index that was written for one listing of a source."""

    index: Path
    digest: str
    """BLAKE3 over the names and contents of all files."""
    files: int
    bytes: int
    read: int
    """Files that were opened this time."""


def segment_path(durable: Path, name: str) -> Path:
    return durable / "segments" / f"{name}.parquet"


def segments(index: Path, durable: Path, file: str | None = None) -> list[Path]:
    """The segments that an index names, for all files or for one."""
    rows = pq.ParquetFile(index).read(["name", "segment"])
    if file is not None:
        rows = rows.filter(pc.equal(rows["name"], file))
    return [segment_path(durable, name) for name in sorted(rows["segment"].unique().to_pylist())]


def newest(durable: Path, dataset: str) -> Path:
    """The index written last; a path that does not exist when there is none."""
    folder = durable / "datasets" / dataset
    try:
        name = parsing.value((folder / "extracts.json").read_bytes())["index"]
    except FileNotFoundError:
        name = "none"
    return folder / "extracts" / str(name)


def known_files(durable: Path, dataset: str, key: str) -> dict[str, tuple[Any, ...]]:
    """The rows of the newest index by file name, without the files whose segment is gone.

    There are none when the index was written with another key.
    """
    path = newest(durable, dataset)
    if not path.exists():
        return {}
    table = pq.ParquetFile(path).read()
    if table.schema.metadata[KEY].decode() != key:
        return {}
    there = {name for name in set(table["segment"].to_pylist()) if segment_path(durable, name).exists()}
    rows = zip(*(table[field.name].to_pylist() for field in INDEX), strict=True)
    return {name: (version, *rest, segment) for name, version, *rest, segment in rows if segment in there}


def write_index(durable: Path, dataset: str, key: str, rows: list[tuple[Any, ...]], shop: Path) -> Path:
    """Write an index, named by its hash, and make it the dataset's newest one."""
    folder, made = durable / "datasets" / dataset, shop / "extracts.parquet"
    columns = zip(zip(*rows, strict=True), INDEX, strict=True)
    schema = INDEX.with_metadata({KEY: key})
    table = pa.table([pa.array(column, field.type) for column, field in columns], schema=schema)
    with writing(made):
        pq.write_table(table, made)
    path = folder / "extracts" / f"{verify.measure(made).blake3[:16]}.parquet"
    atomic.move(made, path)  # the same bytes if it is there, and young
    pointer = atomic.readable_json({"index": path.name})
    if not (folder / "extracts.json").exists() or (folder / "extracts.json").read_bytes() != pointer:
        atomic.replace(folder / "extracts.json", pointer, shop)
    return path


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """BLAKE3 over the names and contents of files, which are in the order of their names."""
    return digest.of_bytes(atomic.canonical_json(list(files)))

"""Extracts: the index of the documents of a source's files. It has one row per file, which names the file's segment.

Segments are Parquet files, a cache of read and cleaned documents. The grouping of files in them does not affect
results.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3

from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.reading.sources import SourceFile
from slipway.trainer.base import atomic, parsing, regular_file, verify

INDEX = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
    ]
)
ROWS_AT_ONCE = 65_536
FileRow = tuple[Any, ...]
"""Name, version, bytes, BLAKE3 and segment of a file."""
KEY = b"slipway.extraction"
"""The key in an index's metadata for the hash of everything besides the files that decided its content."""

_NAME = re.compile(r"\w+\.parquet")
"""The form of an index's file name, which is its hash."""


@dataclass(frozen=True)
class Extracts:
    """The index that was written for one listing of a source."""

    index: Path
    digest: str
    """BLAKE3 over the names and contents of all files."""
    files: int
    bytes: int
    read: int
    """The number of files that this build opened."""


def segment_path(durable: Path, name: str) -> Path:
    return durable / "segments" / f"{name}.parquet"


def segments(index: Path, durable: Path, file: str | None = None) -> list[Path]:
    """The segments that an index names, for all files or for one."""
    names = set[str]()
    with pq.ParquetFile(index) as rows:
        for batch in rows.iter_batches(ROWS_AT_ONCE, columns=["name", "segment"] if file else ["segment"]):
            chosen = batch.filter(pc.equal(batch["name"], file)) if file else batch
            names.update(chosen["segment"].unique().to_pylist())
    return [segment_path(durable, name) for name in sorted(names)]


def newest(durable: Path, dataset: str) -> Path:
    """The last index; a path that does not exist if there is none.

    Raises ValueError if the pointer to it is unreadable.
    """
    folder = durable / "datasets" / dataset
    try:
        pointer = parsing.value(regular_file.read(folder / "extracts.json"))
    except FileNotFoundError:
        return folder / "extracts" / "none"
    except ValueError:
        pointer = None
    name = pointer.get("index") if isinstance(pointer, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{folder / 'extracts.json'}: found no name of an index; to write it again: slipway data build {dataset}"
        )
    return folder / "extracts" / name


class KnownFiles:
    """The rows of the newest index in the order of names, without the files whose segment is gone.

    There are none if the index has another key or is damaged, and then all files are read again. Each iteration reads
    the rows again, with only a batch of them in memory.
    """

    def __init__(self, durable: Path, dataset: str, key: str) -> None:
        self._durable = durable
        self._there = dict[str, bool]()
        path = _whole_index(durable, dataset)
        same = path is not None and pq.read_schema(path).metadata[KEY].decode() == key
        self._path = path if same else None

    def __len__(self) -> int:
        """The number of rows, including those whose segment is gone."""
        if self._path is None:
            return 0
        return int(pq.read_metadata(self._path).num_rows)

    def __iter__(self) -> Iterator[FileRow]:
        if self._path is None:
            return
        with pq.ParquetFile(self._path) as index:
            for batch in index.iter_batches(ROWS_AT_ONCE):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if self._is_there(row[-1]):
                        yield row

    def of(self, files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, FileRow | None]]:
        """Each file, in the order of names, with its row if that has the same version."""
        rows = iter(self)
        row = next(rows, None)
        for file in files:
            while row is not None and row[0] < file.name:
                row = next(rows, None)
            yield file, row if row is not None and row[:2] == (file.name, file.version) else None

    def _is_there(self, segment: str) -> bool:
        if segment not in self._there:
            self._there[segment] = segment_path(self._durable, segment).exists()
        return self._there[segment]


def _whole_index(durable: Path, dataset: str) -> Path | None:
    """The newest index, if its content matches its name."""
    try:
        path = newest(durable, dataset)
        return path if _name_of(path) == path.name else None
    except (FileNotFoundError, ValueError):
        return None


def _name_of(index: Path) -> str:
    return f"{verify.measure(index).blake3[:16]}.parquet"


def write_index(durable: Path, dataset: str, key: str, rows: Iterable[FileRow], scratch: Path) -> Path:
    """Write an index, named by its hash, and make it the dataset's newest one; memory holds a batch of the rows."""
    folder = durable / "datasets" / dataset
    temporary = scratch / "extracts.parquet"
    _write_rows(rows, INDEX.with_metadata({KEY: key}), temporary)
    path = folder / "extracts" / _name_of(temporary)
    atomic.move(temporary, path)  # an existing file has the same bytes, and becomes young
    pointer = atomic.readable_json({"index": path.name})
    if not (folder / "extracts.json").exists() or regular_file.read(folder / "extracts.json") != pointer:
        atomic.replace(folder / "extracts.json", pointer, scratch)
    return path


class FreshRows:
    """The rows of files that this build reads, in the order of names. They wait in a file of the scratch folder for the
    index, because in a first build they are the rows of all files."""

    def __init__(self, rows: Iterable[FileRow], scratch: Path) -> None:
        self._path = scratch / "fresh.parquet"
        _write_rows(rows, INDEX, self._path)

    def __iter__(self) -> Iterator[FileRow]:
        with pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _write_rows(rows: Iterable[FileRow], schema: pa.Schema, path: Path) -> None:
    waiting = iter(rows)
    with writing(path), pq.ParquetWriter(path, schema) as writer:
        while batch := list(itertools.islice(waiting, ROWS_AT_ONCE)):
            columns = zip(zip(*batch, strict=True), schema, strict=True)
            writer.write_table(pa.table([pa.array(column, field.type) for column, field in columns], schema=schema))


class FilesDigest:
    """BLAKE3 over the names and contents of files, added in the order of names. It hashes their canonical JSON, one
    file at a time."""

    def __init__(self) -> None:
        self._hashed = blake3(b"[")
        self._between = b""

    def add(self, name: str, content: str) -> None:
        self._hashed.update(self._between + atomic.canonical_json([name, content]))
        self._between = b","

    def of_rows(self, rows: Iterable[FileRow]) -> Iterator[FileRow]:
        """Pass the rows through, and add each of them."""
        for row in rows:
            self.add(row[0], row[3])
            yield row

    def hexdigest(self) -> str:
        """The digest of the files; no more may be added after this."""
        return self._hashed.update(b"]").hexdigest()


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """The `FilesDigest` of names and contents."""
    files_digest = FilesDigest()
    for name, content in files:
        files_digest.add(name, content)
    return files_digest.hexdigest()

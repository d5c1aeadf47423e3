"""Tokens: locates the tokens of every document of a new snapshot, and encodes each document only once.

Documents of the parent snapshot have their tokens in its shards. Worker processes encode the others into spools, plain
files of tokens in the scratch folder, from which the new shards are written. What is where is in Parquet files in the
scratch folder too: memory holds a batch of documents, however many there are.
"""

import functools
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.build_log import BYTES, BuildPhase
from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.building.verified_shards import VerifiedShards
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.documents.extracts import segment_path
from slipway.assets.datasets.texts import segments, tokenizer
from slipway.assets.datasets.texts.encoders import TextEncoding
from slipway.assets.datasets.texts.segments import TextPlace
from slipway.trainer.data import shards

LOCATED = pa.schema(
    [
        pa.field("blake3", pa.string()),
        pa.field("file", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("count", pa.int64()),
    ]
)
"""One row per document: its BLAKE3, the index of its file in `Located.files`, its first token there, and its number of
tokens."""
MISSING = """
    SELECT e.segment, k.name, k.number, k.blake3, k.bytes FROM part k
    ANTI JOIN read_parquet($located) l ON l.blake3 = k.blake3
    JOIN read_parquet($index) e ON e.name = k.name
    WHERE k.removed IS NULL ORDER BY e.segment, k.row
"""
"""The documents of a part of the table that are not located, by segment and in the segment's order."""
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Spool:
    """A file of tokens; `shard` describes it if it is a shard."""

    path: Path
    shard: shards.TokenShard | None

    def tokens(self, dtype: str) -> npt.NDArray[Any]:
        """The tokens, memory-mapped; in a shard the offsets follow them."""
        return np.asarray(np.memmap(self.path, shards.DTYPES[dtype], "r"))


@dataclass(frozen=True)
class Located:
    """Files of tokens, and Parquet files of `LOCATED` with the places of documents in them."""

    files: list[Spool]
    documents: list[Path]


def in_parent(build: Build, parent: shards.TextSnapshot | None) -> Located:
    """The documents in the parent snapshot's shards, without those of a shard or table that is gone or damaged."""
    durable = build.durable
    verified = VerifiedShards(build.durable, build.recipe.name)
    located = Located([], [build.scratch / "parent.parquet"])
    with writing(located.documents[0]), pq.ParquetWriter(located.documents[0], LOCATED) as writer:
        if parent is None or not document_table.path(durable, parent.documents["blake3"]).exists():
            return located
        table = document_table.path(durable, parent.documents["blake3"])
        for name, split in parent.splits.items():
            hashes = _Hashes(table, name)
            for shard in split.shards:
                shard_hashes = hashes.following(shard.documents)
                # Damage must not be copied to a new shard, whose hash would then confirm it.
                if verified.has(shard):
                    _, offsets = shards.open_shard(durable, shard, parent.dtype)
                    writer.write_table(_rows(shard_hashes, len(located.files), offsets[:-1], np.diff(offsets)))
                    located.files.append(Spool(shards.shard_path(durable, shard), shard))
    return located


class _Hashes:
    """The hashes of a split's documents in a documents table, in its order."""

    def __init__(self, table: Path, split: str) -> None:
        self._batches = pq.ParquetFile(table).iter_batches(ROWS_AT_ONCE, columns=["blake3", "split"])
        self._split = split
        self._buffer = pa.chunked_array([], pa.string())

    def following(self, count: int) -> pa.ChunkedArray:
        """The next `count` hashes; fewer at the end of the table."""
        while len(self._buffer) < count and (batch := next(self._batches, None)) is not None:
            in_split = batch.filter(pa.compute.equal(batch["split"], self._split))["blake3"]
            self._buffer = pa.chunked_array([*self._buffer.chunks, in_split], pa.string())
        following = self._buffer.slice(0, count)
        self._buffer = self._buffer.slice(count)
        return following


def _rows(hashes: pa.ChunkedArray, file: int, starts: npt.NDArray[Any], counts: npt.NDArray[Any]) -> pa.Table:
    """Rows of `LOCATED` for documents of one file."""
    columns = [hashes, np.full(len(hashes), file, np.int32), starts.astype(np.int64), counts.astype(np.int64)]
    return pa.table(dict(zip(LOCATED.names, columns, strict=True)), schema=LOCATED)


def encode_missing(build: Build, located: Located, table: Path, index: Path, tokenizer_sha256: str) -> Located:
    """Encode the kept documents of `table` that are not located yet."""
    values = {"index": str(index), "located": [str(document) for document in located.documents]}
    sizes, missing = dict[str, int](), dict[str, list[Path]]()
    with document_table.connect(build.scratch) as connection:
        for number in document_table.parts(connection, table):
            rows = connection.sql(MISSING, params=values).to_arrow_reader(ROWS_AT_ONCE)
            for segment, size, path in _write_missing(rows, build.scratch, number):
                sizes[segment] = sizes.get(segment, 0) + size
                missing.setdefault(segment, []).append(path)
    first = len(located.files)
    durable = build.durable
    scratch = build.scratch
    tasks = [
        _Encoding(segment_path(durable, name), tuple(missing[name]), first + index, tokenizer_sha256, durable, scratch)
        for index, name in enumerate(sizes)
    ]
    total = sum(sizes.values())
    phase = BuildPhase(build.log, "encoding new text", total, BYTES)
    for size, located_file in zip(sizes.values(), workers.run(_encode, tasks, total), strict=True):
        located.documents.append(located_file)
        phase.add(size)
    return Located([*located.files, *(Spool(task.spool, None) for task in tasks)], located.documents)


def _write_missing(rows: pa.RecordBatchReader, scratch: Path, number: int) -> Iterator[tuple[str, int, Path]]:
    """Write the rows of each segment, which come one after the other, to a file of its own; `number` is that of their
    part of the table. Gives each segment with the bytes of these texts, and the file."""
    runs = (run for batch in rows for run in _runs(batch))
    for name, of_segment in itertools.groupby(runs, key=lambda run: run[0]):
        path = scratch / f"{name}.{number}.missing"
        size = 0
        with writing(path), pq.ParquetWriter(path, rows.schema) as writer:
            for _, batch in of_segment:
                size += pa.compute.sum(batch["bytes"]).as_py()
                writer.write_batch(batch)
        yield name, size, path


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each segment in a batch that is in their order."""
    begin = 0
    for run in pa.compute.value_counts(batch["segment"]).to_pylist():
        yield run["values"], batch.slice(begin, run["counts"])
        begin += run["counts"]


@dataclass(frozen=True)
class _Encoding:
    """Documents of a segment that one worker encodes into one spool."""

    segment: Path
    missing: tuple[Path, ...]
    """The files that name these documents, in the order of the segment."""
    file: int
    """The index of the spool among the files of tokens."""
    tokenizer: str
    durable: Path
    scratch: Path

    @property
    def spool(self) -> Path:
        return self.scratch / f"{self.segment.stem}.tokens"

    @property
    def located(self) -> Path:
        """The file that says where the documents are in the spool."""
        return self.scratch / f"{self.segment.stem}.located.parquet"

    @property
    def text_places(self) -> Iterator[TextPlace]:
        """The documents, in the order of the segment."""
        for path in self.missing:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=["name", "number", "blake3"]):
                    yield from map(TextPlace, *(column.to_pylist() for column in batch.columns))


def _encode(task: _Encoding) -> Path:
    """Write the tokens of the task's documents, and a file with their places; returns its path."""
    encoding, described = _encoder(task.durable, task.tokenizer)
    dtype = shards.DTYPES[described.dtype]
    begin = 0
    hashes: list[str] = []
    counts: list[int] = []

    def note() -> None:
        nonlocal begin
        ends = begin + np.cumsum(counts, dtype=np.int64)
        table.write_table(_rows(pa.chunked_array([hashes], pa.string()), task.file, ends - counts, np.array(counts)))
        begin = int(ends[-1])
        hashes.clear()
        counts.clear()

    # The files are renamed at the end, because another worker may write the same ones if this one was considered dead.
    temporary_spool, temporary_located = (
        path.with_suffix(f".{uuid.uuid4().hex}") for path in (task.spool, task.located)
    )
    with (
        writing(temporary_spool),
        temporary_spool.open("wb") as spool,
        pq.ParquetWriter(temporary_located, LOCATED) as table,
    ):
        for blake3, text in segments.texts(task.segment, task.text_places):
            # The same tokens as `encode_ordinary`, whose list of Python integers would be ten times as large.
            tokens = encoding.encode_to_numpy(text, disallowed_special=())
            spool.write(np.append(tokens, described.end_of_document).astype(dtype).tobytes())
            hashes.append(blake3)
            counts.append(len(tokens) + 1)
            if len(counts) == ROWS_AT_ONCE:
                note()
        if counts:
            note()
    temporary_located.rename(task.located)
    temporary_spool.rename(task.spool)
    return task.located


@functools.lru_cache(maxsize=1)
def _encoder(durable: Path, sha256: str) -> tuple[TextEncoding, shards.TokenizerRecord]:
    """The encoder of a stored tokenizer, made once in a process."""
    data = tokenizer.read(durable, sha256)
    return tokenizer.encoding(data), tokenizer.describe(data)

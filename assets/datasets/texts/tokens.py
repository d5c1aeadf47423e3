"""Tokens: where the tokens of every document of a new snapshot are; each document is encoded only once.

Documents of the parent snapshot have their tokens in its shards. Worker processes encode the others into spools, plain
files of tokens in the workshop, from which the new shards are written.
"""

import functools
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from assets.datasets.building import workers
from assets.datasets.building.build_log import BuildLog
from assets.datasets.building.workshop import writing
from assets.datasets.documents import document_table
from assets.datasets.documents.extracts import segment_path
from assets.datasets.texts import segments, tokenizer
from assets.datasets.texts.encoders import TextEncoding
from trainer.base import verify
from trainer.data import shards

MISSING_FILE = "missing.parquet"
"""The file in the workshop with the documents that have to be encoded, by segment."""

LOCATED = pa.schema(
    [
        pa.field("blake3", pa.string()),
        pa.field("file", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("count", pa.int64()),
    ]
)
MISSING = """
    SELECT e.segment, k.blake3, k.bytes FROM read_parquet($table) k
    ANTI JOIN located l ON l.blake3 = k.blake3
    JOIN read_parquet($index) e ON e.name = k.name
    WHERE k.removed IS NULL ORDER BY e.segment
"""
SIZES = "SELECT segment, sum(bytes)::BIGINT FROM read_parquet(?) GROUP BY segment ORDER BY segment"
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Spool:
    """A file of tokens; `shard` describes it if it is a shard."""

    path: Path
    shard: shards.TokenShard | None

    def tokens(self, dtype: str) -> npt.NDArray[Any]:
        """The tokens, memory-mapped; in a shard its offsets follow them."""
        return np.memmap(self.path, shards.DTYPES[dtype], "r")


@dataclass(frozen=True)
class Located:
    """Files of tokens, and a row for each document: its BLAKE3, its file, its first token there, and its tokens."""

    files: list[Spool]
    documents: pa.Table

    def with_file(
        self, file: Spool, hashes: list[str], starts: npt.NDArray[Any], counts: npt.NDArray[Any]
    ) -> "Located":
        columns = [hashes, np.full(len(hashes), len(self.files), np.int32), starts, counts]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, LOCATED, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=LOCATED)
        return Located([*self.files, file], pa.concat_tables([self.documents, table]))


def in_parent(parent: shards.TextSnapshot | None, durable: Path) -> Located:
    """The documents in the parent snapshot's shards, without those of a shard or table that is gone or damaged."""
    located = Located([], LOCATED.empty_table())
    if parent is None or not document_table.path(durable, parent.documents["blake3"]).exists():
        return located
    table = pq.ParquetFile(document_table.path(durable, parent.documents["blake3"])).read(["blake3", "split"])
    for name, split in parent.splits.items():
        hashes = table.filter(pa.compute.equal(table["split"], name))["blake3"]
        begin = 0
        for shard in split.shards:
            path = shards.shard_path(durable, shard)
            # Damage must not be copied into a new shard, because the new hash would then confirm it.
            if verify.is_whole(path, shard):
                _, offsets = shards.open_shard(durable, shard, parent.dtype)
                here = hashes.slice(begin, shard.documents).to_pylist()
                located = located.with_file(Spool(path, shard), here, offsets[:-1], np.diff(offsets))
            begin += shard.documents
    return located


def encode_missing(
    located: Located,
    table: Path,
    index: Path,
    tokenizer_sha256: str,
    durable: Path,
    shop: Path,
    connection: duckdb.DuckDBPyConnection,
    report: BuildLog,
) -> Located:
    """Encode the kept documents of `table` that are not located yet."""
    connection.register("located", located.documents)
    missing = connection.sql(MISSING, params={"table": str(table), "index": str(index)}).to_arrow_reader(ROWS_AT_ONCE)
    with writing(shop / MISSING_FILE), pq.ParquetWriter(shop / MISSING_FILE, missing.schema) as writer:
        for batch in missing:
            writer.write_batch(batch)
    rows = connection.execute(SIZES, [str(shop / MISSING_FILE)]).fetchall()
    tasks = [_Encoding(segment_path(durable, name), tokenizer_sha256, durable, shop) for name, _ in rows]
    done, total = 0, sum(size for _, size in rows)
    for task, (_, size), found in zip(tasks, rows, workers.run(_encode, tasks, total), strict=True):
        located = located.with_file(Spool(task.spool, None), *found)
        done += size
        report(f"encoded {done / 1e6:,.0f} of {total / 1e6:,.0f} MB of new text")
    return located


@dataclass(frozen=True)
class _Encoding:
    """Documents of a segment that one worker encodes into one spool."""

    segment: Path
    tokenizer: str
    durable: Path
    shop: Path

    @property
    def spool(self) -> Path:
        return self.shop / f"{self.segment.stem}.tokens"

    @property
    def wanted(self) -> frozenset[str]:
        """The BLAKE3 of the documents, read in the worker, because those of all segments together may be many."""
        only = [("segment", "==", self.segment.stem)]
        return frozenset(
            pq.read_table(self.shop / MISSING_FILE, columns=["blake3"], filters=only)["blake3"].to_pylist()
        )


def _encode(task: _Encoding) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Write the tokens of the task's documents; returns their hashes, the first token and the number of tokens of
    each."""
    encoding, described = _encoder(task.durable, task.tokenizer)
    dtype = shards.DTYPES[described.dtype]
    hashes: list[str] = []
    counts: list[int] = []
    wanted = task.wanted
    # Renamed at its end: another worker may be at the same spool, because this one was taken for dead.
    made = task.spool.with_suffix(f".{uuid.uuid4().hex}")
    with writing(made), made.open("wb") as spool:
        for blake3, text in segments.texts(task.segment, wanted):
            # The same tokens as `encode_ordinary`, whose list of Python integers would be ten times as large.
            tokens = encoding.encode_to_numpy(text, disallowed_special=())
            spool.write(np.append(tokens, described.end_of_document).astype(dtype).tobytes())
            hashes.append(blake3)
            counts.append(len(tokens) + 1)
    made.rename(task.spool)
    assert set(hashes) == wanted, "a kept document is in the segment that the index names"
    ends = np.cumsum(counts, dtype=np.int64)
    return hashes, ends - counts, np.array(counts, np.int64)


@functools.lru_cache(maxsize=1)
def _encoder(durable: Path, sha256: str) -> tuple[TextEncoding, shards.TokenizerRecord]:
    """The encoder of a stored tokenizer, made once in a process."""
    data = tokenizer.read(durable, sha256)
    return tokenizer.encoding(data), tokenizer.describe(data)

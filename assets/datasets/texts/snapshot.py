"""Snapshot of texts: the kept documents as token shards under one manifest.

Shards contain the documents in the order of the table. The content decides where one shard ends, so a snapshot shares
all shards with its parent except those around a change, and a node with the parent copies only these. An incremental
build and a build from nothing give the same bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.build_log import BuildPhase
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.documents.document_table import SPLITS, DocumentTable
from slipway.assets.datasets.snapshots import packing
from slipway.assets.datasets.snapshots.snapshot_step import entropy
from slipway.assets.datasets.texts import tokens
from slipway.trainer.data import shards

VERSION = "2"
"""The version of this code, raised when the same documents and tokenizer would give another snapshot."""

ORDERED = """
    SELECT l.file, l.start, l.count, k.bytes, ('0x' || right(k.blake3, 16))::UBIGINT AS hash
    FROM part k JOIN read_parquet($located) l ON l.blake3 = k.blake3
    WHERE k.split = $split ORDER BY k.row
"""
"""The places of the tokens of a split's documents in a part of the table, in its order."""


@dataclass(frozen=True)
class TextPlan:
    """The inputs of a snapshot."""

    dataset: str
    recipe_sha256: str
    source: dict[str, Any]
    """Provenance, for the manifest."""
    table: DocumentTable
    tokenizer: shards.TokenizerRecord
    shard_tokens: int
    """Tokens in an average shard."""


def write(build: Build, plan: TextPlan, index: Path, parent: shards.TextSnapshot | None) -> shards.TextSnapshot:
    """Encode the documents that no shard of `parent` has, write the missing shards, and then the manifest.

    `index` is the index of the texts. Equal plans give equal bytes, with any parent of the same tokenizer or none.
    """
    table = document_table.path(build.durable, plan.table.blake3)
    located = tokens.in_parent(build, parent)
    located = tokens.encode_missing(build, located, table, index, plan.tokenizer.sha256)
    packing_all, splits = BuildPhase(build.log, "packing", plan.table.kept_rows, "documents"), {}
    for split in SPLITS:
        with document_table.connect(build.scratch) as connection:
            rows = _ordered(connection, table, split, located)
            splits[split] = _pack(build, rows, located, plan, packing_all)
    snapshot = shards.TextSnapshot(
        dataset=plan.dataset,
        recipe=plan.recipe_sha256,
        source=plan.source,
        documents={"blake3": plan.table.blake3, "rows": plan.table.rows, "kept": plan.table.kept_rows},
        tokenizer=plan.tokenizer,
        dtype=plan.tokenizer.dtype,
        splits=splits,
    )
    shards.write_manifest(build.durable, snapshot, build.scratch)
    return snapshot


def _ordered(
    connection: duckdb.DuckDBPyConnection, table: Path, split: str, located: tokens.Located
) -> Iterator[pa.RecordBatch]:
    """The places of the tokens of a split's documents, in the order of the table."""
    values = {"split": split, "located": [str(document) for document in located.documents]}
    for _ in document_table.parts(connection, table):
        yield from connection.sql(ORDERED, params=values).to_arrow_reader(tokens.ROWS_AT_ONCE)


def _pack(
    build: Build, rows: Iterable[pa.RecordBatch], located: tokens.Located, plan: TextPlan, phase: BuildPhase
) -> shards.TokenSplit:
    """Write a split's shards, one at a time, except those that the parent has."""
    written = list[shards.TokenShard]()
    text_bytes = 0
    dtype = plan.tokenizer.dtype
    for part in packing.parts(rows, plan.shard_tokens):
        columns = {name: part[name].to_numpy() for name in part.column_names}
        shard = _shared(columns, located)
        if shard is None:
            runs = _runs(columns, located, dtype)
            shard = shards.write_runs(build.durable, runs, columns["count"], dtype, build.scratch)
        written.append(shard)
        text_bytes += int(columns["bytes"].sum())
        phase.add(part.num_rows)
    return shards.TokenSplit(
        documents=sum(shard.documents for shard in written),
        tokens=sum(shard.tokens for shard in written),
        text_bytes=text_bytes,
        shards=tuple(written),
    )


Columns = dict[str, npt.NDArray[Any]]


def _shared(part: Columns, located: tokens.Located) -> shards.TokenShard | None:
    """The parent's shard with exactly these documents in this order, if there is one."""
    shard = located.files[part["file"][0]].shard
    if shard is None or (part["file"] != part["file"][0]).any() or len(part["count"]) != shard.documents:
        return None
    begins = np.cumsum(part["count"]) - part["count"]
    return shard if (part["start"] == begins).all() else None


def _runs(part: Columns, located: tokens.Located, dtype: str) -> Iterator[npt.NDArray[Any]]:
    """The tokens of the documents, memory-mapped from their files. Neighbours in a file form one run, and there are
    many of them if few documents are new."""
    file = part["file"]
    start = part["start"]
    end = part["start"] + part["count"]
    first = np.flatnonzero(np.append(True, (file[1:] != file[:-1]) | (start[1:] != end[:-1])))
    last = np.append(first[1:], len(file)) - 1
    mapped = {number: located.files[number].tokens(dtype) for number in np.unique(file).tolist()}
    for number, begin, stop in zip(file[first].tolist(), start[first].tolist(), end[last].tolist(), strict=True):
        yield mapped[number][begin:stop]


def unigram_entropy(snapshot: shards.TextSnapshot, tier: Path) -> float:
    """The entropy of the validation split's token frequencies, in nats per token: the loss that a model must beat.

    Raises ValueError when the split is empty.
    """
    counts = np.zeros(snapshot.tokenizer.vocab_size, np.int64)
    for shard in snapshot.splits["validation"].shards:
        tokens, _ = shards.open_shard(tier, shard, snapshot.dtype)
        counts += np.bincount(tokens, minlength=len(counts))
    return entropy(counts, snapshot.sha256)

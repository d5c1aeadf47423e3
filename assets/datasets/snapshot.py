"""Snapshot: the kept documents as token shards under one manifest, and which snapshot a dataset points at.

Shards hold the documents in the order of the table and are cut where their content says, so that a snapshot
shares all shards with its parent but those around what changed; a node that has the parent copies only those.
An incremental build and one from nothing give the same bytes.
"""

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from assets.datasets import documents, packing, tokenizer, tokens
from assets.datasets.extraction import Report
from assets.datasets.workshop import workshop
from trainer import atomic, journal, shards

VERSION = "2"
"""Of the code below: raised when the same documents and tokenizer would give another snapshot."""

ORDERED = """
    SELECT l.file, l.start, l.count, k.bytes, ('0x' || right(k.blake3, 16))::UBIGINT AS hash
    FROM read_parquet($table) k JOIN located l ON l.blake3 = k.blake3
    WHERE k.split = $split ORDER BY k.name, k.number
"""


@dataclass(frozen=True)
class Plan:
    """What a snapshot is made of."""

    dataset: str
    recipe_sha256: str
    source: dict[str, Any]
    """Provenance, for the manifest."""
    table: documents.Documents
    tokenizer: shards.Tokenizer
    shard_tokens: int
    """In a shard, on average."""


def build(
    plan: Plan, index: Path, parent: shards.Snapshot | None, durable: Path, shop: Path, report: Report
) -> shards.Snapshot:
    """Encode what no shard of `parent` holds, write the shards that it has not, and then the manifest.

    `index` says where the texts are, and `shop` is the dataset's workshop. Equal plans give equal bytes, with any
    parent of the same tokenizer or none.
    """
    table = documents.table_path(durable, plan.table.blake3)
    located = tokens.in_parent(parent, durable)
    with documents.connect(shop) as connection:
        located = tokens.encode_missing(located, table, index, plan.tokenizer.sha256, durable, shop, connection, report)
        connection.register("located", located.documents)
        splits = {
            split: _pack(_ordered(connection, table, split), located, plan, durable, shop) for split in documents.SPLITS
        }
    snapshot = shards.Snapshot(
        dataset=plan.dataset,
        recipe=plan.recipe_sha256,
        source=plan.source,
        documents={"blake3": plan.table.blake3, "rows": plan.table.rows, "kept": plan.table.kept},
        tokenizer=plan.tokenizer,
        dtype=plan.tokenizer.dtype,
        splits=splits,
    )
    shards.write_manifest(durable, snapshot, shop)
    return snapshot


Columns = dict[str, npt.NDArray[Any]]


def _ordered(connection: duckdb.DuckDBPyConnection, table: Path, split: str) -> Columns:
    """Where the tokens of a split's documents are, in the order of the table."""
    columns: Columns = connection.execute(ORDERED, {"table": str(table), "split": split}).fetchnumpy()
    return columns


def _pack(rows: Columns, located: tokens.Located, plan: Plan, durable: Path, shop: Path) -> shards.Split:
    """Write a split's shards, one at a time, but those that lie there whole already."""
    written = []
    for cut in packing.cuts(rows["count"], rows["hash"], plan.shard_tokens):
        part = {name: column[cut] for name, column in rows.items()}
        shard = _shared(part, located)
        if shard is None:
            shard = shards.write_shard(
                durable, _documents(part, located, plan.tokenizer.dtype), plan.tokenizer.dtype, shop
            )
        written.append(shard)
    return shards.Split(
        documents=len(rows["count"]),
        tokens=int(rows["count"].sum()),
        text_bytes=int(rows["bytes"].sum()),
        shards=tuple(written),
    )


def _shared(part: Columns, located: tokens.Located) -> shards.Shard | None:
    """The parent's shard that holds exactly these documents in this order, if there is one."""
    shard = located.files[part["file"][0]].shard
    if shard is None or (part["file"] != part["file"][0]).any() or len(part["count"]) != shard.documents:
        return None
    begins = np.cumsum(part["count"]) - part["count"]
    return shard if (part["start"] == begins).all() else None


def _documents(part: Columns, located: tokens.Located, dtype: str) -> list[npt.NDArray[Any]]:
    """The tokens of each document, mapped from the files that hold them."""
    files = {number: located.files[number].tokens(dtype) for number in np.unique(part["file"]).tolist()}
    places = zip(part["file"].tolist(), part["start"].tolist(), part["count"].tolist(), strict=True)
    return [files[file][start : start + count] for file, start, count in places]


def in_tokens_of(described: shards.Snapshot, other: shards.Snapshot, durable: Path) -> shards.Snapshot:
    """The validation split of `described` in the tokens of `other`: the same text, for models of both.

    The text is decoded from the shards, which loses nothing. Raises ValueError when a tokenizer is gone.
    """
    if other.tokenizer == described.tokenizer:
        return described
    mine, theirs = (tokenizer.load(durable, each.tokenizer.sha256) for each in (described, other))
    split, dtype = described.splits["validation"], shards.DTYPES[other.dtype]
    written = []
    for shard in split.shards:
        bodies = [body[:-1].tolist() for body in shards.documents(durable, shard, described.dtype)]
        encoded = [theirs.encode_ordinary(mine.decode(body)) for body in bodies]
        ended = [np.array([*each, other.tokenizer.end_of_document], dtype) for each in encoded]
        written.append(shards.write_shard(durable, ended, other.dtype))
    total = sum(shard.tokens for shard in written)
    spoken = dataclasses.replace(split, tokens=total, shards=tuple(written))
    snapshot = dataclasses.replace(
        described, tokenizer=other.tokenizer, dtype=other.dtype, splits={"validation": spoken}
    )
    shards.write_manifest(durable, snapshot)
    return snapshot


def unigram_entropy(snapshot: shards.Snapshot, tier: Path) -> float:
    """Entropy of the validation split's token frequencies, in nats per token.

    What a model reaches that knows how frequent each token is and nothing of their order: the bar to beat.
    Raises ValueError when the split is empty.
    """
    counts = np.zeros(snapshot.tokenizer.vocab_size, np.int64)
    for shard in snapshot.splits["validation"].shards:
        tokens, _ = shards.open_shard(tier, shard, snapshot.dtype)
        counts += np.bincount(tokens, minlength=len(counts))
    if not counts.sum():
        raise ValueError(f"snapshot {snapshot.sha256}: its validation split is empty, so it has no entropy")
    return entropy(counts)


def entropy(counts: npt.NDArray[np.int64]) -> float:
    """H = -sum p ln p (Shannon 1948) of what was counted, in nats."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def current(durable: Path, dataset: str) -> str | None:
    """The SHA-256 of the snapshot that a dataset points at, or None before its first."""
    try:
        value = json.loads((_folder(durable, dataset) / "current.json").read_bytes())
    except FileNotFoundError:
        return None
    return str(value["snapshot"])


def point(durable: Path, dataset: str, sha256: str, source_digest: str) -> None:
    """Point a dataset at a snapshot, and note in its history when and from which source; once for each change.

    The history comes first: after a crash in between, pointing again adds nothing to it.
    """
    folder = _folder(durable, dataset)
    now = {"snapshot": sha256, "source": source_digest}
    with workshop(durable, dataset) as shop:
        before = journal.read(folder / "history.journal").events
        if not before or {key: before[-1][key] for key in now} != now:
            with journal.Journal(folder / "history.journal") as history:
                history.append({"time": time.time(), **now})
        atomic.replace(folder / "current.json", atomic.readable_json(now), shop)


def _folder(durable: Path, dataset: str) -> Path:
    return durable / "datasets" / dataset

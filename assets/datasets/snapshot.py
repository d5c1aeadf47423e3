"""Snapshot: documents as token shards under one manifest, and which snapshot a dataset points at.

A document's shard is chosen by its hash, and its place there is by hash too: with the same tokenizer, a
document that joins, leaves or changes touches the shards it hashes to and no other, so a node that has the
snapshot before it copies only those.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tiktoken

from assets.datasets import documents
from trainer import atomic, journal, lock, shards

VERSION = "1"
"""Of the code below: raised when the same documents and tokenizer would give another snapshot."""

SPLITS = ("train", "validation")


def build(
    dataset: str,
    recipe_sha256: str,
    source: dict[str, Any],
    table: documents.Documents,
    tokenizer: shards.Tokenizer,
    encoding: tiktoken.Encoding,
    shard_counts: dict[str, int],
    durable: Path,
) -> shards.Snapshot:
    """Encode every document, write the shards and then the manifest; equal arguments give equal bytes.

    `source` is provenance, for the manifest; `shard_counts` says how many shards each split is laid out in.
    """
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "uint32"
    path = documents.table_path(durable, table.blake3)
    snapshot = shards.Snapshot(
        dataset=dataset,
        recipe=recipe_sha256,
        source=source,
        documents={"blake3": table.blake3, "rows": table.rows, "duplicates": table.duplicates},
        tokenizer=tokenizer,
        dtype=dtype,
        splits={
            split: _write_split(documents.read(path, split), encoding, tokenizer, dtype, shard_counts[split], durable)
            for split in SPLITS
        },
    )
    shards.write_manifest(durable, snapshot)
    return snapshot


def shard_of(blake3: str, count: int) -> int:
    """The shard of a document, by the last 64 bits of its hash; its split is decided by the first ones."""
    return int(blake3[-16:], 16) % count


def _write_split(
    rows: pa.Table, encoding: tiktoken.Encoding, tokenizer: shards.Tokenizer, dtype: str, count: int, durable: Path
) -> shards.Split:
    """Write a split's shards, one at a time; a shard that no document hashes to is not written."""
    hashes = rows.column("blake3").to_pylist()
    members: dict[int, list[int]] = {}
    for row in sorted(range(len(hashes)), key=hashes.__getitem__):
        members.setdefault(shard_of(hashes[row], count), []).append(row)
    written = tuple(
        shards.write_shard(durable, _encode(rows.take(members[shard]), encoding, tokenizer, dtype), dtype)
        for shard in sorted(members)
    )
    return shards.Split(
        documents=len(hashes),
        tokens=sum(shard.tokens for shard in written),
        text_bytes=sum(rows.column("bytes").to_pylist()),
        shards=written,
    )


def _encode(
    rows: pa.Table, encoding: tiktoken.Encoding, tokenizer: shards.Tokenizer, dtype: str
) -> list[npt.NDArray[Any]]:
    """Each document's tokens, then the end-of-document token; a text that spells the latter stays text."""
    encoded = encoding.encode_ordinary_batch(rows.column("text").to_pylist())
    return [np.array([*tokens, tokenizer.end_of_document], shards.DTYPES[dtype]) for tokens in encoded]


def unigram_entropy(snapshot: shards.Snapshot, tier: Path) -> float:
    """Entropy of the validation split's token frequencies, H = -sum p ln p (Shannon 1948), in nats per token.

    What a model reaches that knows how frequent each token is and nothing of their order: the bar to beat.
    Raises ValueError when the split is empty.
    """
    counts = np.zeros(snapshot.tokenizer.vocab_size, np.int64)
    for shard in snapshot.splits["validation"].shards:
        tokens, _ = shards.open_shard(tier, shard, snapshot.dtype)
        counts += np.bincount(tokens, minlength=len(counts))
    if not counts.sum():
        raise ValueError(f"snapshot {snapshot.sha256}: its validation split is empty, so it has no entropy")
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
    with lock.exclusive(folder):
        before = journal.read(folder / "history.journal").events
        if not before or {key: before[-1][key] for key in now} != now:
            with journal.Journal(folder / "history.journal") as history:
                history.append({"time": time.time(), **now})
        atomic.replace(folder / "current.json", atomic.readable_json(now))


def _folder(durable: Path, dataset: str) -> Path:
    return durable / "datasets" / dataset

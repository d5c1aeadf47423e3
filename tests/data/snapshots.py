"""Small real snapshots for tests: random tokens in a folder that plays the durable tier."""

from pathlib import Path

import numpy as np

from trainer import shards


def make_snapshot(durable: Path, shard_count: int = 3, tokens: int = 1000) -> shards.Snapshot:
    """Write a snapshot of `shard_count` training shards and one for validation, of `tokens` tokens each."""
    random = np.random.default_rng(0)

    def split(count: int) -> shards.Split:
        written = tuple(
            shards.write_shard(durable, [random.integers(0, 256, tokens, np.uint16)], "uint16") for _ in range(count)
        )
        return shards.Split(count, count * tokens, count * tokens, written)

    snapshot = shards.Snapshot(
        dataset="random",
        recipe="0" * 64,
        source={"kind": "random"},
        documents={},
        tokenizer=shards.Tokenizer("0" * 64, 257, 256),
        dtype="uint16",
        splits={"train": split(shard_count), "validation": split(1)},
    )
    shards.write_manifest(durable, snapshot)
    return snapshot

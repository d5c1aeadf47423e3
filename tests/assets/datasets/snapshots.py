"""Small real snapshots for tests: random tokens in a folder that stands for the durable tier."""

from pathlib import Path

import numpy as np

from trainer.data import shards


def make_snapshot(durable: Path, shard_count: int = 3, tokens: int = 1000) -> shards.TextSnapshot:
    """Write a snapshot of `shard_count` training shards and one for validation, of `tokens` tokens each."""
    random = np.random.default_rng(0)

    def split(count: int) -> shards.TokenSplit:
        written = tuple(
            shards.write_shard(durable, [random.integers(0, 256, tokens, np.uint16)], "uint16") for _ in range(count)
        )
        return shards.TokenSplit(count, count * tokens, count * tokens, written)

    snapshot = shards.TextSnapshot(
        dataset="random",
        recipe="0" * 64,
        source={"kind": "random"},
        documents={},
        tokenizer=shards.TokenizerRecord("0" * 64, 257, 256),
        dtype="uint16",
        splits={"train": split(shard_count), "validation": split(1)},
    )
    shards.write_manifest(durable, snapshot)
    return snapshot

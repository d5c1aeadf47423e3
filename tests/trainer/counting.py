"""A snapshot whose tokens count up, each shard's from a multiple of 10,000: a token says where it lies."""

from pathlib import Path

import numpy as np

from slipway.trainer.data import shards


def snapshot_of(tier: Path, *lengths: int) -> shards.TextSnapshot:
    """A snapshot with one training shard of each length, one document a shard."""
    streams = [np.arange(length, dtype=np.uint32) + 10_000 * number for number, length in enumerate(lengths)]
    written = tuple(shards.write_shard(tier, [stream], "uint32") for stream in streams)
    split = shards.TokenSplit(len(lengths), sum(lengths), sum(lengths), written)
    return shards.TextSnapshot(
        dataset="counting",
        recipe="0" * 64,
        source={},
        documents={},
        tokenizer=shards.TokenizerRecord("0" * 64, 100_000, 0),
        dtype="uint32",
        splits={"train": split},
    )

"""Small real snapshots for tests: random tokens in a folder that stands for the durable tier."""

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slipway.trainer.data import shards


def make_snapshot(durable: Path, shard_count: int = 3, tokens: int = 1000, followers: int = 256) -> shards.TextSnapshot:
    """Write a snapshot of `shard_count` training shards and one for validation, of `tokens` tokens each.

    After each token one of so many `followers` comes, by chance. Fewer than 256 can be learned, and the loss falls to
    their entropy, ln(followers); of all 256, a model can only learn a small snapshot by heart.
    """
    random = np.random.default_rng(0)

    def drawn() -> npt.NDArray[np.uint16]:
        chosen = random.integers(0, followers, tokens, np.uint16)
        if followers == 256:
            return chosen
        return np.fromiter(itertools.accumulate(chosen.tolist(), lambda last, new: (5 * last + new) % 256), np.uint16)

    def split(count: int) -> shards.TokenSplit:
        written = tuple(shards.write_shard(durable, [drawn()], "uint16") for _ in range(count))
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

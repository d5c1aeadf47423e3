"""Pictures of noise as a snapshot of many small shards: much to read, little to compute."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from slipway.trainer.data import images, shards

SIDE, SHARD_PICTURES = 64, 40
"""A shard has 40 pictures of 64 x 64 pixels: half a megabyte."""
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {"kind": "vit", "layers": 1, "width": 8, "heads": 2, "hidden": 8, "patch": 32},
    "batch": {"sequences": 16, "length": 0, "micro": 16},
    "validation": {"every": 20, "sequences": 8},
}


def maker(count: int) -> Callable[[Path], images.ImageSnapshot]:
    """Makes a snapshot of `count` training shards and one for validation; labels are noise too."""

    def make(durable: Path) -> images.ImageSnapshot:
        random = np.random.default_rng(11)

        def split(count: int) -> images.ImageSplit:
            written = tuple(_shard(durable, random) for _ in range(count))
            return images.ImageSplit(count * SHARD_PICTURES, written)

        snapshot = images.ImageSnapshot(
            dataset="noise",
            recipe="0" * 64,
            source={"kind": "random"},
            documents={},
            height=SIDE,
            width=SIDE,
            channels=3,
            classes=tuple("0123456789"),
            splits={"train": split(count), "validation": split(1)},
        )
        shards.write_manifest(durable, snapshot)
        return snapshot

    return make


def _shard(durable: Path, random: np.random.Generator) -> images.ImageShard:
    pixels = random.integers(0, 256, (SHARD_PICTURES, SIDE, SIDE, 3), np.uint8)
    return images.write_shard(durable, pixels, random.integers(0, 10, SHARD_PICTURES).astype(np.uint32))

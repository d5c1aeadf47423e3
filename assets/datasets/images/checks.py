"""Checks: what must hold of a snapshot of images, read back from what lies on the disk."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from assets.datasets.documents import SPLITS
from trainer import digest, images

SAMPLE = 20
"""Images that are compared with the table, spread evenly over each split."""


@dataclass(frozen=True)
class Counts:
    """The kept images of each class by split."""

    by_split: dict[str, dict[str, int]]

    @property
    def totals(self) -> list[tuple[str, int]]:
        """The images of each class in both splits."""
        return sorted(sum((Counter(counts) for counts in self.by_split.values()), Counter()).items())

    def lacking(self) -> list[str]:
        """The classes that one of the splits has no image of."""
        return [name for name, _ in self.totals if not all(counts.get(name) for counts in self.by_split.values())]


def counts(table: Path) -> Counts:
    """The classes of a documents table's kept images."""
    found = pq.read_table(table, columns=["split", "label"]).group_by(["split", "label"]).aggregate([([], "count_all")])
    by_split: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for row in found.to_pylist():
        if row["split"] is not None:
            by_split[row["split"]][row["label"]] = row["count_all"]
    return Counts(by_split)


def wrong(snapshot: images.Snapshot, tier: Path, table: Path) -> tuple[int, int]:
    """How many images of a fixed sample were read, and how many are not the table's, or not of its class."""
    columns = pq.read_table(table, columns=["split", "blake3", "label"]).to_pydict()
    known = set(zip(columns["split"], columns["blake3"], columns["label"], strict=True))
    found = list(_sample(snapshot, tier))
    return len(found), sum(each not in known for each in found)


def _sample(snapshot: images.Snapshot, tier: Path) -> Iterator[tuple[str, str, str]]:
    """Images by number, at even distances over each split: the split, the hash of the pixels, the class."""
    for name, split in snapshot.splits.items():
        wanted = np.unique(np.linspace(0, split.images - 1, min(SAMPLE, split.images), dtype=int)).tolist()
        begin = 0
        for shard in split.shards:
            pixels, labels = images.open_images(tier, shard, snapshot.shape)
            for number in (each - begin for each in wanted if begin <= each < begin + shard.images):
                yield name, digest.of_bytes(pixels[number].tobytes()), snapshot.classes[labels[number]]
            begin += shard.images

"""Pictures of a snapshot's split: images and labels by number, read through mmap, as `sequences` reads texts.

A pixel's channel stays one byte, as on disk; the model widens it on the device.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slipway.trainer.data import images
from slipway.trainer.data.sequences import OpenShards, SequenceStarts


class Labelled(NamedTuple):
    """Images with their labels: [n, height, width, channels] and [n]."""

    pixels: images.Pixels
    labels: images.Labels


class Pictures:
    """The images of one split, numbered through its shards. A shard's file is opened when it is first read."""

    def __init__(
        self,
        tier: Path,
        snapshot: images.ImageSnapshot,
        split: str,
        bring: Callable[[images.ImageShard], None] | None = None,
    ) -> None:
        """`bring` is called with a shard before it is opened. Raises ValueError when the split is empty."""
        self.shape = snapshot.shape
        self.classes = snapshot.classes
        self.shards = snapshot.splits[split].shards
        self.sizes = np.array([shard.images for shard in self.shards], np.int64)
        """How many images each shard has."""
        self._starts = SequenceStarts(self.sizes)
        self._tier = tier
        self._bring = bring
        self.opened = OpenShards(self._open)
        if len(self) == 0:
            raise ValueError(f"split {split} of {snapshot.dataset} has no image")

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def empty(self, count: int) -> Labelled:
        """Room for `count` images, to read into."""
        return Labelled(np.empty((count, *self.shape), np.uint8), np.empty(count, np.uint32))

    def read(self, numbers: npt.NDArray[np.uint64], out: Labelled | None = None) -> Labelled:
        """The images with these numbers, in `out` if it is given.

        Raises FileNotFoundError or ValueError for a shard whose file is missing or does not have the described size.
        """
        read = self.empty(len(numbers)) if out is None else out
        for row, (shard_index, number) in enumerate(self._starts.of(numbers)):
            pixels, labels = self.opened[shard_index]
            read.pixels[row] = pixels[number]
            read.labels[row] = labels[number]
        return read

    def _open(self, shard_index: int) -> Labelled:
        shard = self.shards[shard_index]
        if self._bring is not None:
            self._bring(shard)
        pixels, labels = images.open_images(self._tier, shard, self.shape)
        return Labelled(np.asarray(pixels), np.asarray(labels))

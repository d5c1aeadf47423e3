"""The format of image shards and of the snapshots that are made of them.

A shard is one file, named by its BLAKE3: the pixels of its images one after the other, each `height` rows of
`width` pixels of `channels` bytes, padded with zeros to a multiple of 8 bytes, then a little-endian unsigned
32-bit label for each image. It has no header: the manifest describes it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from slipway.trainer.base import digest
from slipway.trainer.data import shards

FORMAT = "slipway.images/1"
LABELS = np.dtype("<u4")

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ImageShard(shards.ShardFile):
    """One shard of images, as in the manifest."""

    images: int


@dataclass(frozen=True)
class ImageSplit:
    """One split of a snapshot."""

    images: int
    shards: tuple[ImageShard, ...]


class ImageShape(NamedTuple):
    """The shape of every image of a snapshot: rows, pixels in a row, bytes of a pixel."""

    height: int
    width: int
    channels: int

    @property
    def bytes(self) -> int:
        """The bytes of one image."""
        return self.height * self.width * self.channels


@dataclass(frozen=True)
class ImageSnapshot(shards.SnapshotManifest):
    """An immutable snapshot of labelled images. Equal inputs give equal manifests."""

    FORMAT: ClassVar = FORMAT

    dataset: str
    recipe: str
    source: dict[str, Any]
    documents: dict[str, Any]
    height: int
    width: int
    channels: int
    """1: grey; 3: red, green and blue; 4: opacity too."""
    classes: tuple[str, ...]
    """The names of the classes; a label is a place among them."""
    splits: dict[str, ImageSplit]

    @property
    def shape(self) -> ImageShape:
        return ImageShape(self.height, self.width, self.channels)


def write_shard(tier: Path, pixels: Pixels, labels: Labels, scratch: Path | None = None) -> ImageShard:
    """Write a shard into the tier, unless it is there and whole, and describe it.

    `pixels` are [images, height, width, channels], `labels` are [images].
    """
    assert len(pixels) == len(labels)
    data = pixels.tobytes() + bytes(-pixels.size % 8) + labels.astype(LABELS).tobytes()
    return ImageShard(*shards.put_shard(tier, data, scratch), len(labels))


def open_images(tier: Path, shard: ImageShard, shape: ImageShape) -> tuple[Pixels, Labels]:
    """A shard's pixels, [images, height, width, channels], and labels, [images], memory-mapped and read-only.

    Raises ValueError when the file does not have the described size; staging verifies its contents.
    """
    size = shard.images * shape.bytes
    padded = -(-size // 8) * 8
    data = shards.mapped(tier, shard, padded + LABELS.itemsize * shard.images)
    return data[:size].reshape(shard.images, *shape), data[padded:].view(LABELS)


def read_manifest(tier: Path, sha256: str) -> ImageSnapshot:
    """Read and verify a manifest. Raises ValueError when it is missing, damaged or of another format."""
    return parse_manifest(*shards.stored_manifest(tier, sha256))


def parse_manifest(data: bytes, sha256: str, where: str) -> ImageSnapshot:
    """The snapshot of a manifest's bytes. Raises ValueError, beginning with `where`, as `read_manifest`."""
    version, value = shards.manifest_value(data, sha256, where)
    if version != FORMAT:
        raise ValueError(f"{where}: format: found {version!r}, expected {FORMAT!r}")
    with shards.describing(where, FORMAT):
        splits = {name: _split(split) for name, split in value["splits"].items()}
        return shards.counted(ImageSnapshot(**{**value, "classes": tuple(value["classes"]), "splits": splits}))


def _split(value: dict[str, Any]) -> ImageSplit:
    described = tuple(shards.counted(ImageShard(**shard)) for shard in value["shards"])
    for shard in described:
        digest.checked(shard.blake3)
    return shards.counted(ImageSplit(**{**value, "shards": described}))

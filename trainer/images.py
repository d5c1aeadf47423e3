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

from trainer import digest, shards

FORMAT = "slipway.images/1"
LABELS = np.dtype("<u4")

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Shard(shards.File):
    """One shard of images as the manifest describes it."""

    images: int


@dataclass(frozen=True)
class Split:
    """One split of a snapshot."""

    images: int
    shards: tuple[Shard, ...]


class Shape(NamedTuple):
    """Of every image of a snapshot: rows, pixels in a row, bytes of a pixel."""

    height: int
    width: int
    channels: int

    @property
    def bytes(self) -> int:
        """Of one image."""
        return self.height * self.width * self.channels


@dataclass(frozen=True)
class Snapshot(shards.Manifest):
    """An immutable snapshot of labelled images. Equal inputs give equal manifests."""

    FORMAT: ClassVar = FORMAT

    dataset: str
    recipe: str
    source: dict[str, Any]
    documents: dict[str, Any]
    height: int
    width: int
    channels: int
    """1 is grey, 3 is red, green and blue, 4 has opacity too."""
    classes: tuple[str, ...]
    """The names of the classes; a label is a place among them."""
    splits: dict[str, Split]

    @property
    def shape(self) -> Shape:
        return Shape(self.height, self.width, self.channels)


def write_shard(tier: Path, pixels: Pixels, labels: Labels, scratch: Path | None = None) -> Shard:
    """Write a shard into the tier, unless it is there already and whole, and describe it.

    `pixels` are [images, height, width, channels], `labels` are [images].
    """
    assert len(pixels) == len(labels)
    data = pixels.tobytes() + bytes(-pixels.size % 8) + labels.astype(LABELS).tobytes()
    return Shard(*shards.put_shard(tier, data, scratch), len(labels))


def open_images(tier: Path, shard: Shard, shape: Shape) -> tuple[Pixels, Labels]:
    """A shard's pixels, [images, height, width, channels], and labels, [images], memory-mapped and read-only.

    Raises ValueError when the file has not the described size; contents are verified by staging.
    """
    size = shard.images * shape.bytes
    padded = -(-size // 8) * 8
    data = shards.mapped(tier, shard, padded + LABELS.itemsize * shard.images)
    return data[:size].reshape(shard.images, *shape), data[padded:].view(LABELS)


def read_manifest(tier: Path, sha256: str) -> Snapshot:
    """Read and verify a manifest. Raises ValueError when it is missing, damaged or of another format."""
    return parse_manifest(*shards.stored_manifest(tier, sha256))


def parse_manifest(data: bytes, sha256: str, where: str) -> Snapshot:
    """The snapshot that a manifest's bytes describe. Raises ValueError, beginning with `where`, as `read_manifest`."""
    version, value = shards.manifest_value(data, sha256, where)
    if version != FORMAT:
        raise ValueError(f"{where}: format: found {version!r}, expected {FORMAT!r}")
    with shards.describing(where, FORMAT):
        splits = {name: _split(split) for name, split in value["splits"].items()}
        return Snapshot(**{**value, "classes": tuple(value["classes"]), "splits": splits})


def _split(value: dict[str, Any]) -> Split:
    described = tuple(Shard(**shard) for shard in value["shards"])
    for shard in described:
        digest.checked(shard.blake3)
    return Split(**{**value, "shards": described})

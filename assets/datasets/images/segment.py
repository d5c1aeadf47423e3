"""Segments of images: decoded pixels with their labels, a row an image, as `assets.datasets.extraction` keeps them."""

from typing import Any

import PIL
import pyarrow as pa

from assets.datasets.images.decoding import Picture
from recipes.dataset import Images
from trainer import digest

VERSION = "1"
"""Of decoding: raised when the same file would give other pixels or labels."""

SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("pixels", pa.binary()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("label", pa.string()),
        pa.field("removed", pa.string()),
    ]
)


def row(file: str, picture: Picture) -> dict[str, Any]:
    return {
        "file": file,
        "number": picture.number,
        "pixels": picture.pixels,
        "bytes": len(picture.pixels),
        "blake3": digest.of_bytes(picture.pixels),
        "label": picture.label,
        "removed": None,
    }


def configuration(images: Images) -> list[Any]:
    """What decides an image's pixels and label besides its file."""
    return [VERSION, PIL.__version__, images.model_dump(mode="json", exclude={"shard_megabytes"})]

"""Segments of images: decoded pixels with their labels, a row for each image."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import PIL
import pyarrow as pa

from slipway.assets.datasets.building.build import Reader, RowOf
from slipway.assets.datasets.reading import pictures
from slipway.assets.datasets.reading.document import UnfitDocument
from slipway.assets.datasets.reading.pictures import Picture
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import digest

VERSION = "1"
"""The version of decoding, raised if the same file would give other pixels or labels."""

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


def reader(recipe: DatasetRecipe) -> Reader:
    """The reader of the recipe's files, all of which are Parquet."""
    images = recipe.images
    reading = recipe.reading
    assert images is not None

    def read(_: str, stream: BinaryIO) -> Iterator[Picture | UnfitDocument]:
        return pictures.read(stream, images, reading)

    return read


def row_of(_: DatasetRecipe) -> RowOf:
    """The function that makes the row of an image."""
    return _row


def _row(file: str, picture: Picture) -> dict[str, Any]:
    return {
        "file": file,
        "number": picture.number,
        "pixels": picture.pixels,
        "bytes": len(picture.pixels),
        "blake3": digest.of_bytes(picture.pixels),
        "label": picture.label,
        "removed": None,
    }


def configuration(recipe: DatasetRecipe) -> list[Any]:
    """Everything that decides an image's pixels and label besides its file."""
    assert recipe.images is not None
    images = recipe.images.model_dump(mode="json", exclude={"shard_megabytes"})
    return [[VERSION, PIL.__version__, images], recipe.reading.content()]

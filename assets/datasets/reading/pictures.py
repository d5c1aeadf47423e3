"""Decodes the rows of a Parquet file as images of one size with labels.

Pillow decodes and resizes. It is pinned, because another version (or another libjpeg inside it) may give other
pixels; its version is part of what decides the content of a segment. It is imported where pictures are read: every
process of Dagster loads this module.
"""

import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from slipway.assets.datasets.reading import columns
from slipway.assets.datasets.reading.document import Reason, UnfitDocument
from slipway.recipes.dataset import ImagesSection, ReadingSection

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG")
MODES: dict[int, str] = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by the number of channels."""


class Picture(NamedTuple):
    """A labelled image: its number in its file, its pixels by row, column and channel, and the name of its class."""

    number: int
    pixels: bytes
    label: str


class UnreadablePicture(Exception):
    """A row without an image or a label; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


def read(stream: BinaryIO, images: ImagesSection, reading: ReadingSection) -> Iterator[Picture | UnfitDocument]:
    """The images of a Parquet file in their order, with few of them in memory. Raises the stream's errors."""

    def picture(number: int, image: pa.Scalar | None, label: pa.Scalar | None) -> Picture | UnfitDocument:
        try:
            return Picture(number, _pixels(image, images, int(reading.longest_megabytes * 1e6)), _name(label))
        except UnreadablePicture as unreadable:
            return UnfitDocument(number, unreadable.reason)

    return columns.rows(stream, [images.image_field, images.label_field], picture)


def _name(label: pa.Scalar | None) -> str:
    """The name of a class; whole numbers are written in decimals."""
    value = None if label is None else label.as_py()
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise UnreadablePicture("no label")
    return str(value)


def _pixels(image: pa.Scalar | None, images: ImagesSection, longest: int) -> bytes:
    """The pixels of an image, by row, column and channel."""
    if isinstance(image, pa.ListScalar):
        return _listed(image, images)
    value = None if image is None else image.as_py()
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise UnreadablePicture("no image")
    if len(data) > longest:
        raise UnreadablePicture("longer than the limit")
    return decoded(data, images)


def _listed(image: pa.Scalar, images: ImagesSection) -> bytes:
    """The pixels of a list, which must have exactly the recipe's size."""
    if not image.is_valid or not pa.types.is_uint8(image.type.value_type) or image.values.null_count:
        raise UnreadablePicture("no image")
    if len(image.values) != images.height * images.width * images.channels:
        raise UnreadablePicture("of another size")
    pixels: bytes = image.values.to_numpy(zero_copy_only=False).tobytes()
    return pixels


def decoded(data: bytes, images: ImagesSection) -> bytes:
    """The pixels of a PNG or JPEG, turned upright as its EXIF says, in the colours and the size of the recipe.

    Raises UnreadablePicture.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            warnings.simplefilter("ignore")
            if image.width * image.height > images.largest_megapixels * 1e6:
                raise UnreadablePicture("larger than the limit")
            with Image.open(io.BytesIO(data), formats=FORMATS) as checked:
                checked.verify()  # decoding does not check a PNG's checksums
            upright = _of_bytes(ImageOps.exif_transpose(image)).convert(MODES[images.channels])
            # This filter uses fixed-point arithmetic, so the result is the same on every processor.
            return upright.resize((images.width, images.height), Image.Resampling.BILINEAR).tobytes()
    except (UnreadablePicture, MemoryError):
        raise
    except UnidentifiedImageError:
        raise UnreadablePicture("not an image") from None
    except Image.DecompressionBombError:
        raise UnreadablePicture("larger than the limit") from None
    except Exception:  # for damaged files Pillow raises OSError, SyntaxError, ValueError, struct.error and others
        raise UnreadablePicture("damaged image") from None


def _of_bytes(image: "Image.Image") -> "Image.Image":
    """The image; if it has 16 bits a pixel, their upper 8, because Pillow would clip them to white."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image

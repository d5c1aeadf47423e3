"""Decoding: the rows of a Parquet file as images of one size with their labels.

Pillow decodes and resizes. It is pinned, as another version (or another libjpeg inside it) may give other pixels;
its version is part of what decides a segment's content.
"""

import io
import warnings
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image, ImageOps, UnidentifiedImageError

from assets.datasets.reading import columns
from assets.datasets.reading.items import Reason, Unfit
from recipes.dataset import Images, Reading

FORMATS = ("PNG", "JPEG")
MODES: dict[int, str] = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's names of the kinds of pixels, by the number of channels."""
RESAMPLING = Image.Resampling.BILINEAR
"""Weighs all the pixels that become one, in fixed-point arithmetic: the same on every processor."""


class Picture(NamedTuple):
    """A labelled image: its place in its file, its pixels by row, column and channel, and the name of its class."""

    number: int
    pixels: bytes
    label: str


class Unreadable(Exception):
    """A row without an image or a label; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


def read(stream: BinaryIO, images: Images, reading: Reading) -> Iterator[Picture | Unfit]:
    """The images of a Parquet file in their order, a few of them in memory. Raises what the stream raises."""

    def picture(number: int, image: pa.Scalar | None, label: pa.Scalar | None) -> Picture | Unfit:
        try:
            return Picture(number, _pixels(image, images, int(reading.longest_megabytes * 1e6)), _name(label))
        except Unreadable as unreadable:
            return Unfit(number, unreadable.reason)

    return columns.rows(stream, [images.image_field, images.label_field], picture)


def _name(label: pa.Scalar | None) -> str:
    """The name of a class; whole numbers are written in decimals."""
    value = None if label is None else label.as_py()
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise Unreadable("no label")
    return str(value)


def _pixels(image: pa.Scalar | None, images: Images, longest: int) -> bytes:
    """The pixels of an image, by row, column and channel."""
    if isinstance(image, pa.ListScalar):
        return _listed(image, images)
    value = None if image is None else image.as_py()
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise Unreadable("no image")
    if len(data) > longest:
        raise Unreadable("longer than the limit")
    return decoded(data, images)


def _listed(image: pa.Scalar, images: Images) -> bytes:
    """Pixels that stand in a list, which has to be of the very size."""
    if not image.is_valid or not pa.types.is_uint8(image.type.value_type) or image.values.null_count:
        raise Unreadable("no image")
    if len(image.values) != images.height * images.width * images.channels:
        raise Unreadable("of another size")
    pixels: bytes = image.values.to_numpy(zero_copy_only=False).tobytes()
    return pixels


def decoded(data: bytes, images: Images) -> bytes:
    """The pixels of a PNG or JPEG, turned upright as its EXIF says, in the colours and the size of the recipe.

    Raises Unreadable.
    """
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            warnings.simplefilter("ignore")
            if image.width * image.height > images.largest_megapixels * 1e6:
                raise Unreadable("larger than the limit")
            with Image.open(io.BytesIO(data), formats=FORMATS) as checked:
                checked.verify()  # a PNG's checksums, which decoding does not look at
            upright = _of_bytes(ImageOps.exif_transpose(image)).convert(MODES[images.channels])
            return upright.resize((images.width, images.height), RESAMPLING).tobytes()
    except (Unreadable, MemoryError):
        raise
    except UnidentifiedImageError:
        raise Unreadable("not an image") from None
    except Image.DecompressionBombError:
        raise Unreadable("larger than the limit") from None
    except Exception:  # of damaged files Pillow raises OSError, SyntaxError, ValueError, struct.error and others
        raise Unreadable("damaged image") from None


def _of_bytes(image: Image.Image) -> Image.Image:
    """The image; of one with 16 bits a pixel the upper 8, which Pillow would clip to white."""
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if image.mode.startswith("I;16") else image

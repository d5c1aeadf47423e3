"""Fuzzing of images: whatever a PNG or JPEG became, it has the recipe's pixels or a reason to be set aside.

As in `test_readers.py`. What is damaged are images that were whole, since bytes at random end at the first check.
"""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from slipway.assets.datasets.reading import pictures
from slipway.assets.datasets.reading.pictures import UnreadablePicture
from slipway.recipes.dataset import ImagesSection

FEW = settings(max_examples=100, deadline=None)
MANY = settings(max_examples=5000, deadline=None)
SECTION = ImagesSection(height=3, width=4, channels=3, largest_megapixels=0.01)
REASONS = ("not an image", "damaged image", "larger than the limit")
PIXELS = np.arange(12 * 9 * 3, dtype=np.uint8).reshape(9, 12, 3)


def image(kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, kind, **options)
    return stream.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG with its checksum (PNG, 5.3)."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *parts: bytes, depth: int = 8, color: int = 2, interlaced: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + b"".join([chunk(b"IHDR", header), *parts, chunk(b"IEND", b"")])


PICTURES = [image("PNG"), image("JPEG"), image("JPEG", progressive=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0")]
CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=6)
CHUNKS = st.builds(
    chunk,
    st.sampled_from(
        [b"IDAT", b"PLTE", b"tRNS", b"iCCP", b"zTXt", b"iTXt", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"IHDR"]
    ),
    st.binary(max_size=40)
    | st.binary(max_size=40).map(zlib.compress)
    | st.binary(max_size=9).map(lambda a: b"a\0\0" + a),
)
PNGS = st.builds(
    lambda width, height, parts, depth, color, interlaced: png(
        width, height, *parts, depth=depth, color=color, interlaced=interlaced
    ),
    st.integers(0, 9) | st.integers(0, 2**32 - 1),
    st.integers(0, 9) | st.integers(0, 2**32 - 1),
    st.lists(CHUNKS, max_size=4),
    st.sampled_from([1, 2, 4, 8, 16]) | st.integers(0, 255),
    st.sampled_from([0, 2, 3, 4, 6]) | st.integers(0, 255),
    st.integers(0, 2),
)


def turned(data: bytes, changes: list[tuple[int, int]], end: int) -> bytes:
    changed = bytearray(data[: end % (len(data) + 1)] or data)
    for at, by in changes:
        changed[at % len(changed)] ^= by
    return bytes(changed)


DAMAGED = st.builds(turned, st.sampled_from(PICTURES), CHANGES, st.integers(0, 2**16))


def has_its_pixels_or_a_reason(data: bytes) -> None:
    try:
        pixels = pictures.decoded(data, SECTION)
    except UnreadablePicture as unfit:
        assert unfit.reason in REASONS
    else:
        assert len(pixels) == SECTION.height * SECTION.width * SECTION.channels


@FEW
@given(DAMAGED | PNGS | st.binary(max_size=64))
@example(PICTURES[0])
@example(PICTURES[2])
def test_an_image_has_the_pixels_of_the_recipe_or_a_reason(data: bytes):
    has_its_pixels_or_a_reason(data)


@pytest.mark.nightly
@MANY
@given(DAMAGED | PNGS)
def test_an_image_has_the_pixels_of_the_recipe_or_a_reason_for_thousands(data: bytes):
    has_its_pixels_or_a_reason(data)


@pytest.mark.parametrize("data", PICTURES)
def test_what_is_damaged_above_is_whole_before_that(data: bytes):
    assert len(pictures.decoded(data, SECTION)) == 36


@pytest.mark.parametrize(
    "data",
    [
        png(2**31 - 1, 2**31 - 1),
        png(101, 100, chunk(b"IDAT", zlib.compress(bytes(101 * 100 * 3)))),
        png(9, 9, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 26), 9))),
        png(9, 9, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 26), 9))),
        png(9, 9, chunk(b"IDAT", zlib.compress(bytes(1 << 26), 9))),
    ],
    ids=["huge sides", "more pixels than the limit", "text that unpacks", "profile that unpacks", "rows that unpack"],
)
def test_an_image_that_unpacks_to_more_takes_no_memory(data: bytes):
    has_its_pixels_or_a_reason(data)  # imports, once
    tracemalloc.start()
    try:
        has_its_pixels_or_a_reason(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20

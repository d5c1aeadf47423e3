"""Decoding of images: the pixels of each input, and the reasons of rows that are set aside."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from slipway.assets.datasets.reading import pictures
from slipway.assets.datasets.reading.document import UnfitDocument
from slipway.assets.datasets.reading.pictures import Picture
from slipway.recipes.dataset import ImagesSection, ReadingSection
from tests.assets.datasets.digits import png

GRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)
COLORS = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
FIELDS = {"height": 3, "width": 4, "channels": 1}


def read(column, labels=None, reading=None, **fields) -> list[Picture | UnfitDocument]:
    stream = io.BytesIO()
    table = {"image": column} | ({} if labels is ... else {"label": labels or ["a"] * len(column)})
    pq.write_table(pa.table(table), stream)
    stream.seek(0)
    return list(pictures.read(stream, ImagesSection(**{**FIELDS, **fields}), reading or ReadingSection()))


def pixels(column, **fields) -> bytes:
    [document] = read(column, **fields)
    assert isinstance(document, Picture), document
    return document.pixels


def reason(column, **more) -> str:
    [document] = read(column, **more)
    assert isinstance(document, UnfitDocument), document
    return document.reason


def lists_of(rows: list[list[Any]], kind: str = "uint8") -> pa.Array:
    return pa.array(rows, pa.list_(pa.type_for_alias(kind), len(rows[0])))


@pytest.mark.parametrize(
    "column",
    [[png(GRAY)], [{"bytes": png(GRAY), "path": "gray.png"}], lists_of([GRAY.ravel().tolist()])],
    ids=["bytes", "bytes and path", "list of pixels"],
)
def test_an_image_is_bytes_or_bytes_with_a_path_or_its_pixels(column):
    assert pixels(column) == GRAY.tobytes()


def test_pixels_are_ordered_by_row_column_and_channel():
    assert pixels([png(COLORS)], channels=3) == COLORS.tobytes()


def test_a_jpeg_is_read_as_pillow_reads_it():
    data = png(COLORS, "JPEG")
    assert pixels([data], channels=3) == np.asarray(Image.open(io.BytesIO(data))).tobytes()


def test_colours_become_grey_and_grey_becomes_colours():
    assert pixels([png(GRAY)], channels=3) == np.repeat(GRAY[..., None], 3, axis=2).tobytes()
    assert pixels([png(np.full((3, 4, 3), 200, np.uint8))], channels=1) == bytes([200] * 12)


def test_an_image_of_another_size_is_resized_to_the_recipes_size():
    large = np.kron(GRAY, np.ones((4, 4), np.uint8))
    assert len(pixels([png(large)])) == 12
    assert pixels([png(np.full((30, 50), 7, np.uint8))]) == bytes([7] * 12)


def test_the_upper_eight_of_sixteen_bits_a_pixel_are_kept():
    assert pixels([png(GRAY.astype(np.uint16) * 256 + 9)]) == GRAY.tobytes()


def test_a_photograph_is_turned_upright():
    turned, buffer = Image.fromarray(np.rot90(GRAY).copy()), io.BytesIO()
    exif = turned.getexif()
    exif[0x0112] = 6  # "turn a quarter clockwise to look at it"
    turned.save(buffer, "PNG", exif=exif)
    assert pixels([buffer.getvalue()]) == GRAY.tobytes()


@pytest.mark.parametrize(
    ("label", "name"), [(7, "7"), (-1, "-1"), ("cat", "cat")], ids=["number", "below zero", "text"]
)
def test_a_class_is_a_whole_number_or_text(label, name):
    assert read([png(GRAY)], [label]) == [Picture(0, GRAY.tobytes(), name)]


@pytest.mark.parametrize(
    "labels", [[None], [""], [1.5], [True], ...], ids=["null", "empty", "float", "bool", "no column"]
)
def test_a_row_without_a_class_is_set_aside(labels):
    assert reason([png(GRAY)], labels=labels) == "no label"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([None], "no image"),
        (["text"], "no image"),
        ([{"bytes": None, "path": "elsewhere.png"}], "no image"),
        (lists_of([[0.5] * 12], "float32"), "no image"),
        (lists_of([[1] * 11]), "of another size"),
        ([b"text"], "not an image"),
        ([b""], "not an image"),
        ([png(GRAY, "BMP")], "not an image"),
        ([png(COLORS)[:-30]], "damaged image"),
        ([png(COLORS, "JPEG")[:300]], "damaged image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_is_no_image_is_set_aside_with_its_reason(column, expected):
    assert reason(column) == expected


def test_an_image_with_more_pixels_than_the_limit_is_not_decoded():
    assert reason([png(np.zeros((100, 101), np.uint8))], largest_megapixels=0.01) == "larger than the limit"


def test_an_image_with_more_bytes_than_the_limit_is_not_decoded():
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)
    assert reason([png(noise)], reading=ReadingSection(longest_megabytes=0.001)) == "longer than the limit"


def test_rows_after_an_unreadable_row_are_read():
    assert [type(document) for document in read([png(GRAY), b"text", png(GRAY)])] == [Picture, UnfitDocument, Picture]


def test_no_flipped_byte_of_a_png_gives_other_pixels():
    original = png(COLORS)
    damaged = [original[:at] + bytes([original[at] ^ 4]) + original[at + 1 :] for at in range(len(original))]
    contents = {
        document.pixels if isinstance(document, Picture) else document.reason for document in read(damaged, channels=3)
    }
    assert contents <= {"not an image", "damaged image", COLORS.tobytes()}


@pytest.mark.parametrize("seed", range(3))
def test_no_flipped_byte_ends_the_reading_of_a_file(seed):
    random = np.random.default_rng(seed)
    data = [png(COLORS), png(COLORS, "JPEG")]
    damaged = []
    for _ in range(100):
        flipped = bytearray(data[random.integers(2)])
        flipped[random.integers(len(flipped))] ^= random.integers(1, 256)
        damaged.append(bytes(flipped))
    assert len(read(damaged)) == 100

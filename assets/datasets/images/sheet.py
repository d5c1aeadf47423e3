"""The contact sheet: a few images of each class as one small PNG, which shows a person what the labels mean."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import numpy as np

from slipway.assets import figures, plots
from slipway.trainer.data import images

if TYPE_CHECKING:
    from PIL import Image

CLASSES, EACH = 10, 8
"""The most rows and columns: the first classes, and the first training images of each."""
SIDES = (32, 24, 16, 12, 8)
"""Pixels of a side of a tile: the first that keeps the PNG small enough. The last does so without compression."""


def contact_sheet(snapshot: images.ImageSnapshot, tier: Path) -> dg.MarkdownMetadataValue:
    """The first training images of the first classes, one class in each row."""
    rows = _first(snapshot, tier)
    for side in SIDES:
        buffer = io.BytesIO()
        _sheet(rows, side).save(buffer, "PNG", optimize=True)
        if buffer.tell() <= figures.MOST_BYTES:
            break
    return plots.png(buffer.getvalue(), f"a row for each of {', '.join(snapshot.classes[:CLASSES])}")


def _first(snapshot: images.ImageSnapshot, tier: Path) -> list[list[images.Pixels]]:
    """The first training images of each class: [height, width, channels]. Reads only as many shards as it needs."""
    rows: list[list[images.Pixels]] = [[] for _ in snapshot.classes[:CLASSES]]
    for shard in snapshot.splits["train"].shards:
        pixels, labels = images.open_images(tier, shard, snapshot.shape)
        for label, row in enumerate(rows):
            row += [pixels[number] for number in np.flatnonzero(labels == label)[: EACH - len(row)]]
        if all(len(row) == EACH for row in rows):
            break
    return rows


def _sheet(rows: list[list[images.Pixels]], side: int) -> "Image.Image":
    from PIL import Image

    sheet = Image.new("RGB", (EACH * side, max(1, len(rows)) * side), "white")  # a PNG has at least one pixel
    for y, row in enumerate(rows):
        for x, pixels in enumerate(row):
            tile = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            enlarged = tile.width <= side and tile.height <= side  # as squares, which make a small PNG
            how = Image.Resampling.NEAREST if enlarged else Image.Resampling.BILINEAR
            sheet.paste(tile.convert("RGB").resize((side, side), how), (x * side, y * side))
    return sheet

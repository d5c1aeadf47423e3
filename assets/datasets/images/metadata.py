"""The UI's metadata of an image dataset's documents and snapshot, with a contact sheet of the classes."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from slipway.assets import figures, plots
from slipway.assets.datasets.building.step_cache import Record
from slipway.assets.datasets.documents import document_step, document_table, quarantine
from slipway.assets.datasets.images import documents
from slipway.assets.datasets.images.documents import ClassCounts, count_classes
from slipway.resources import warehouse
from slipway.resources.warehouse import RemovalCount
from slipway.trainer.data import images, shards

if TYPE_CHECKING:
    from PIL import Image

CLASSES = 10
"""The most rows of the contact sheet, one for each of the first classes."""
SAMPLES_PER_CLASS = 8
"""The most columns of the contact sheet: the first training images of a class."""
SIDES = (32, 24, 16, 12, 8)
"""Possible sides of a tile in pixels. The first one that keeps the PNG small enough is used; the last always does."""


def of_documents(record: Record, durable: Path) -> dict[str, Any]:
    """The metadata of a documents table: the kept images of each class, and those that each rule left out."""
    path = document_table.path(durable, record.result["blake3"])
    class_counts = count_classes(path)
    removals = warehouse.removals(path)
    columns = [
        dg.TableColumn(field.name, str(field.type), description=documents.COLUMNS[field.name])
        for field in documents.SCHEMA
    ]
    return {
        "dagster/row_count": record.result["rows"],
        "dagster/uri": path.as_uri(),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "images": record.result["kept_rows"],
        **{f"{split}_images": sum(counts.values()) for split, counts in class_counts.by_split.items()},
        "classes": _classes(class_counts),
        "left_out": {removal.reason: removal.documents for removal in removals},
        "files_left_out": record.inputs["source"]["left_out"],
        "files_not_read": dg.MetadataValue.md(quarantine.left_out_table(durable, document_step.dataset_of(record))),
        "samples_left_out": _samples(removals),
        "source": record.inputs["source"]["description"],
        "reused": record.reused,
    }


def of_snapshot(record: Record, snapshot: images.ImageSnapshot, durable: Path) -> dict[str, Any]:
    return {
        "dagster/row_count": sum(split.images for split in snapshot.splits.values()),
        "dagster/uri": shards.manifest_path(durable, snapshot.sha256).as_uri(),
        "snapshot": snapshot.sha256,
        **{f"{name}_images": split.images for name, split in snapshot.splits.items()},
        "shape": f"{snapshot.height} x {snapshot.width} x {snapshot.channels}",
        "classes": len(snapshot.classes),
        "shards": len(snapshot.shards()),
        "shard_bytes": sum(shard.bytes for shard in snapshot.shards()),
        "contact_sheet": contact_sheet(snapshot, durable),
        "reused": record.reused,
    }


def _classes(class_counts: ClassCounts) -> dg.MarkdownMetadataValue:
    rows = [f"| class | {' | '.join(class_counts.by_split)} |", "|---|---:|---:|"]
    rows += [
        f"| {name} | {' | '.join(str(counts.get(name, 0)) for counts in class_counts.by_split.values())} |"
        for name, _ in class_counts.totals
    ]
    return dg.MetadataValue.md("\n".join(rows))


def _samples(removals: tuple[RemovalCount, ...]) -> dg.MarkdownMetadataValue:
    rows = ["| rule | images | such as |", "|---|---:|---|"]
    rows += [f"| {removal.reason} | {removal.documents} | {', '.join(removal.examples)} |" for removal in removals]
    return dg.MetadataValue.md("\n".join(rows))


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
            row += [pixels[number] for number in np.flatnonzero(labels == label)[: SAMPLES_PER_CLASS - len(row)]]
        if all(len(row) == SAMPLES_PER_CLASS for row in rows):
            break
    return rows


def _sheet(rows: list[list[images.Pixels]], side: int) -> "Image.Image":
    from PIL import Image

    sheet = Image.new(
        "RGB", (SAMPLES_PER_CLASS * side, max(1, len(rows)) * side), "white"
    )  # a PNG has at least one pixel
    for y, row in enumerate(rows):
        for x, pixels in enumerate(row):
            tile = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            enlarged = tile.width <= side and tile.height <= side  # as squares, which make a small PNG
            how = Image.Resampling.NEAREST if enlarged else Image.Resampling.BILINEAR
            sheet.paste(tile.convert("RGB").resize((side, side), how), (x * side, y * side))
    return sheet

"""Metadata: what the UI shows of an image dataset's documents and snapshot."""

from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets.datasets.building.memo import Record
from slipway.assets.datasets.documents import document_step, document_table, unread
from slipway.assets.datasets.images import documents
from slipway.assets.datasets.images.classes import ClassCounts, count_classes
from slipway.assets.datasets.images.sheet import contact_sheet
from slipway.resources import warehouse
from slipway.resources.warehouse import RemovalCount
from slipway.trainer.data import images, shards


def of_documents(record: Record, durable: Path) -> dict[str, Any]:
    """The metadata of a documents table: what is kept of each class, and what each rule left out."""
    path = document_table.path(durable, record.result["blake3"])
    found, removals = count_classes(path), warehouse.removals(path)
    columns = [
        dg.TableColumn(field.name, str(field.type), description=documents.COLUMNS[field.name])
        for field in documents.SCHEMA
    ]
    return {
        "dagster/row_count": record.result["rows"],
        "dagster/uri": path.as_uri(),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "images": record.result["kept"],
        **{f"{split}_images": sum(counts.values()) for split, counts in found.by_split.items()},
        "classes": _classes(found),
        "left_out": {removal.reason: removal.documents for removal in removals},
        "files_left_out": record.inputs["source"]["left_out"],
        "files_not_read": dg.MetadataValue.md(unread.table(durable, document_step.dataset_of(record))),
        "samples_left_out": _samples(removals),
        "source": record.inputs["source"]["description"],
        "reused": record.reused,
    }


def of_snapshot(record: Record, made: images.ImageSnapshot, durable: Path) -> dict[str, Any]:
    return {
        "dagster/row_count": sum(split.images for split in made.splits.values()),
        "dagster/uri": shards.manifest_path(durable, made.sha256).as_uri(),
        "snapshot": made.sha256,
        **{f"{name}_images": split.images for name, split in made.splits.items()},
        "shape": f"{made.height} x {made.width} x {made.channels}",
        "classes": len(made.classes),
        "shards": len(made.shards()),
        "shard_bytes": sum(shard.bytes for shard in made.shards()),
        "contact_sheet": contact_sheet(made, durable),
        "reused": record.reused,
    }


def _classes(found: ClassCounts) -> dg.MarkdownMetadataValue:
    rows = [f"| class | {' | '.join(found.by_split)} |", "|---|---:|---:|"]
    rows += [
        f"| {name} | {' | '.join(str(counts.get(name, 0)) for counts in found.by_split.values())} |"
        for name, _ in found.totals
    ]
    return dg.MetadataValue.md("\n".join(rows))


def _samples(removals: tuple[RemovalCount, ...]) -> dg.MarkdownMetadataValue:
    rows = ["| rule | images | such as |", "|---|---:|---|"]
    rows += [f"| {each.reason} | {each.documents} | {', '.join(each.examples)} |" for each in removals]
    return dg.MetadataValue.md("\n".join(rows))

"""Metadata: what the UI shows of a dataset's documents, tokenizer and snapshot, as plain values and plots."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg

from assets import plots
from assets.datasets import documents, excerpts, snapshot, tokenizer
from assets.datasets.difference import Difference
from assets.datasets.memo import Record
from resources import warehouse
from resources.warehouse import Removal, Total
from trainer import shards


def of_documents(record: Record, durable: Path) -> dict[str, Any]:
    """Of a documents table: what is kept, what was left out by which rule and samples of it."""
    path = documents.table_path(durable, record.result["blake3"])
    found = warehouse.statistics(path)
    columns = [
        dg.TableColumn(field.name, str(field.type), description=documents.COLUMNS[field.name])
        for field in documents.SCHEMA
    ]
    return {
        "dagster/row_count": found.rows,
        "dagster/uri": path.as_uri(),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "documents": found.documents,
        "text_bytes": found.bytes,
        "masked": found.masked,
        **{f"{split.name}_documents": split.documents for split in found.splits},
        "left_out": {removal.reason: removal.documents for removal in found.removals},
        "files_left_out": record.inputs["source"]["left_out"],
        "samples_left_out": _samples(found.removals, record, durable),
        "source": record.inputs["source"]["description"],
        "packages": _totals("package", found.packages),
        "languages": _totals("language", found.languages),
        "lengths": plots.length_histogram(found.lengths),
        "reused": record.reused,
    }


def of_tokenizer(record: Record, durable: Path) -> dict[str, Any]:
    made = shards.Tokenizer(**record.result)
    return {
        "dagster/uri": tokenizer.path(durable, made.sha256).as_uri(),
        "vocab_size": made.vocab_size,
        "end_of_document": made.end_of_document,
        "reused": record.reused,
    }


def of_snapshot(record: Record, made: shards.Snapshot, durable: Path) -> dict[str, Any]:
    splits = made.splits.values()
    tokens, text_bytes = sum(split.tokens for split in splits), sum(split.text_bytes for split in splits)
    counts = {f"{name}_tokens": split.tokens for name, split in made.splits.items()}
    return {
        "dagster/row_count": sum(split.documents for split in splits),
        "dagster/uri": shards.manifest_path(durable, made.sha256).as_uri(),
        "snapshot": made.sha256,
        "tokens": tokens,
        **counts,
        "shards": len(made.shards()),
        "shard_bytes": sum(shard.bytes for shard in made.shards()),
        "bytes_per_token": text_bytes / max(tokens, 1),
        **({"unigram_entropy": snapshot.unigram_entropy(made, durable)} if counts["validation_tokens"] else {}),
        "splits": _totals("split", [Total(n, s.documents, s.text_bytes) for n, s in made.splits.items()]),
        "reused": record.reused,
    }


def of_difference(parent: shards.Manifest, found: Difference) -> dict[str, Any]:
    """What a snapshot has otherwise than its parent."""
    described: dict[str, Any] = {
        "parent": parent.sha256,
        "shared_shards": found.shared_shards,
        "new_shard_bytes": found.new_bytes,
    }
    if isinstance(parent, shards.Snapshot):
        described["tokens_added"] = found.tokens[1] - found.tokens[0]
    if found.documents is not None:
        changes = found.documents
        described |= {
            "documents_added": changes.added,
            "documents_removed": changes.removed,
            "documents_changed": changes.changed,
        }
    return described


def _samples(removals: Iterable[Removal], record: Record, durable: Path) -> dg.MarkdownMetadataValue:
    """Names of documents that each rule left out, with the beginning of the first one's text."""
    rows = ["| rule | documents | such as | begins |", "|---|---:|---|---|"]
    index = next(durable / file for file in record.files if Path(file).parent.name == "extracts")
    for removal in removals:
        begins = excerpts.beginning(index, durable, removal.examples[0])
        rows.append(f"| {removal.reason} | {removal.documents} | {', '.join(removal.examples)} | {begins} |")
    return dg.MetadataValue.md("\n".join(rows))


def _totals(heading: str, totals: Iterable[Total]) -> dg.MarkdownMetadataValue:
    """Totals as a Markdown table."""
    rows = [f"| {heading} | documents | bytes of text |", "|---|---:|---:|"]
    rows += [f"| {each.name} | {each.documents} | {each.bytes} |" for each in totals]
    return dg.MetadataValue.md("\n".join(rows))

"""The UI's metadata of a dataset's documents, tokenizer and snapshot, as plain values and plots."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import plots
from slipway.assets.datasets import inspection
from slipway.assets.datasets.building.step_cache import Record
from slipway.assets.datasets.documents import document_step, document_table, quarantine
from slipway.assets.datasets.texts import distributions, documents, encoders, snapshot, tokenizer
from slipway.resources import warehouse
from slipway.resources.warehouse import RemovalCount, Total
from slipway.trainer.base import parsing
from slipway.trainer.data import shards


def of_documents(record: Record, durable: Path) -> dict[str, Any]:
    """The metadata of a documents table: the kept documents, those that each rule left out, and samples."""
    path = document_table.path(durable, record.result["blake3"])
    statistics = warehouse.statistics(path)
    columns = [
        dg.TableColumn(field.name, str(field.type), description=documents.COLUMNS[field.name])
        for field in documents.SCHEMA
    ]
    return {
        "dagster/row_count": statistics.rows,
        "dagster/uri": path.as_uri(),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "documents": statistics.documents,
        "text_bytes": statistics.bytes,
        "masked": statistics.masked,
        **{f"{split.name}_documents": split.documents for split in statistics.splits},
        "left_out": {removal.reason: removal.documents for removal in statistics.removals},
        "files_left_out": record.inputs["source"]["left_out"],
        "files_not_read": dg.MetadataValue.md(quarantine.left_out_table(durable, document_step.dataset_of(record))),
        "samples_left_out": _samples(statistics.removals, record, durable),
        **_distributions(record, durable),
        "source": record.inputs["source"]["description"],
        "packages": _totals("package", statistics.packages),
        "languages": _totals("language", statistics.languages),
        "lengths": plots.length_histogram(statistics.lengths),
        "reused": record.reused,
    }


def of_tokenizer(record: Record, durable: Path) -> dict[str, Any]:
    tokenizer_record = shards.TokenizerRecord(**record.result)
    why = encoders.why_exact(parsing.value(tokenizer.read(durable, tokenizer_record.sha256)))
    return {
        "dagster/uri": tokenizer.path(durable, tokenizer_record.sha256).as_uri(),
        "vocab_size": tokenizer_record.vocab_size,
        "end_of_document": tokenizer_record.end_of_document,
        "encoded_by": "tiktoken" if why is None else f"tokenizers, at a seventh of the speed: {why}",
        "reused": record.reused,
    }


def of_snapshot(record: Record, text_snapshot: shards.TextSnapshot, durable: Path) -> dict[str, Any]:
    splits = text_snapshot.splits.values()
    tokens = sum(split.tokens for split in splits)
    text_bytes = sum(split.text_bytes for split in splits)
    counts = {f"{name}_tokens": split.tokens for name, split in text_snapshot.splits.items()}
    return {
        "dagster/row_count": sum(split.documents for split in splits),
        "dagster/uri": shards.manifest_path(durable, text_snapshot.sha256).as_uri(),
        "snapshot": text_snapshot.sha256,
        "tokens": tokens,
        **counts,
        "shards": len(text_snapshot.shards()),
        "shard_bytes": sum(shard.bytes for shard in text_snapshot.shards()),
        "bytes_per_token": text_bytes / max(tokens, 1),
        **(
            {"unigram_entropy": snapshot.unigram_entropy(text_snapshot, durable)} if counts["validation_tokens"] else {}
        ),
        "splits": _totals("split", [Total(n, s.documents, s.text_bytes) for n, s in text_snapshot.splits.items()]),
        "reused": record.reused,
    }


def _samples(removals: Iterable[RemovalCount], record: Record, durable: Path) -> dg.MarkdownMetadataValue:
    """Examples of documents that each rule left out, with the evidence and the beginning of the first one's text."""
    rows = ["| rule | documents | such as | because of | begins |", "|---|---:|---|---|---|"]
    index = document_step.index_of(record, durable)
    for removal in removals:
        begins = inspection.first_characters(index, durable, removal.examples[0])
        because = inspection.in_a_cell(removal.because or "")
        rows.append(
            f"| {removal.reason} | {removal.documents} | {', '.join(removal.examples)} | {because} | {begins} |"
        )
    return dg.MetadataValue.md("\n".join(rows))


def _distributions(record: Record, durable: Path) -> dict[str, Any]:
    """A picture of the rules' measures, if the recipe has rules."""
    thresholds = record.inputs.get("rules") or {}
    measured = distributions.distributions(document_step.index_of(record, durable), durable, thresholds)
    if not measured:
        return {}
    return {"rules": plots.png_markdown(distributions.picture(measured), "what the rules measured")}


def _totals(heading: str, totals: Iterable[Total]) -> dg.MarkdownMetadataValue:
    """Totals as a Markdown table."""
    rows = [f"| {heading} | documents | bytes of text |", "|---|---:|---:|"]
    rows += [f"| {total.name} | {total.documents} | {total.bytes} |" for total in totals]
    return dg.MetadataValue.md("\n".join(rows))

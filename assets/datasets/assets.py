"""The lane of one dataset as Dagster assets: documents, tokenizer, snapshot.

Assets hand each other nothing in memory: every step finds what the one before it left in the durable tier, so
each can be materialised alone, in its own process, and doing it again does nothing.
"""

from pathlib import Path
from typing import Any

import dagster as dg

from assets import keys, plots
from assets.datasets import checks, documents, snapshot, steps, tokenizer
from assets.datasets.memo import Record
from recipes.schema import Dataset
from resources import warehouse
from resources.tiers import Tiers
from trainer import shards

CHECKS = {
    "no_empty_split": "Both splits hold documents and tokens.",
    "no_document_in_both_splits": "No document's tokens occur in the train and in the validation split.",
    "tokens_decode_to_the_text": f"{checks.SAMPLE} documents decode back to texts of the documents table.",
}


def dataset_assets(recipe: Dataset) -> list[dg.AssetsDefinition]:
    """The three assets of a dataset recipe's lane; they need the resource `tiers`."""
    return [_documents(recipe), _tokenizer(recipe), _snapshot(recipe)]


def _documents(recipe: Dataset) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.key(recipe.name, "documents"),
        group_name=keys.lane(recipe.name),
        kinds={"parquet", "duckdb"},
        owners=[recipe.owner],
        code_version=documents.VERSION,
        description=f"{recipe.description}\n\nThe texts as one table, without exact duplicates; "
        "a document's split is decided by the hash of its text.",
    )
    def documents_asset(tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_documents(recipe, tiers.durable_path)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["blake3"]),
            metadata=_documents_metadata(record, tiers.durable_path),
        )

    return documents_asset


def _tokenizer(recipe: Dataset) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.key(recipe.name, "tokenizer"),
        deps=[keys.key(recipe.name, "documents")],
        group_name=keys.lane(recipe.name),
        kinds={"tokenizers"},
        owners=[recipe.owner],
        code_version=tokenizer.VERSION,
        description=f"Byte-level BPE with up to {recipe.tokenizer.vocab_size} tokens, "
        "trained on the train split alone.",
    )
    def tokenizer_asset(tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_tokenizer(recipe, tiers.durable_path)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["sha256"]),
            metadata=_tokenizer_metadata(record, tiers.durable_path),
        )

    return tokenizer_asset


def _snapshot(recipe: Dataset) -> dg.AssetsDefinition:
    key = keys.key(recipe.name, "snapshot")

    @dg.asset(
        key=key,
        deps=[keys.key(recipe.name, "documents"), keys.key(recipe.name, "tokenizer")],
        group_name=keys.lane(recipe.name),
        kinds={"dataset"},
        owners=[recipe.owner],
        code_version=snapshot.VERSION,
        description="The documents as token shards under one immutable manifest, which trainings name by its "
        "SHA-256. The dataset points at it once its checks have passed.",
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=text, blocking=True) for name, text in CHECKS.items()
        ],
    )
    def snapshot_asset(tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        durable = tiers.durable_path
        record = steps.make_snapshot(recipe, durable)
        made = shards.read_manifest(durable, record.result["sha256"])
        results = _checked(made, durable)
        if all(result.passed for result in results):
            snapshot.point(durable, recipe.name, made.sha256, made.source["digest"])
        return dg.MaterializeResult(
            data_version=dg.DataVersion(made.sha256),
            metadata=_snapshot_metadata(record, made, durable),
            check_results=results,
        )

    return snapshot_asset


def _documents_metadata(record: Record, durable: Path) -> dict[str, Any]:
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
        "text_bytes": found.bytes,
        **{f"{split.name}_documents": split.documents for split in found.splits},
        "duplicates": found.duplicates,
        "left_out": record.inputs["source"]["left_out"],
        "source": record.inputs["source"]["description"],
        "packages": _table("package", found.packages),
        "lengths": plots.length_histogram(found.lengths),
        "reused": record.reused,
    }


def _tokenizer_metadata(record: Record, durable: Path) -> dict[str, Any]:
    made = shards.Tokenizer(**record.result)
    return {
        "dagster/uri": tokenizer.path(durable, made.sha256).as_uri(),
        "vocab_size": made.vocab_size,
        "end_of_document": made.end_of_document,
        "reused": record.reused,
    }


def _snapshot_metadata(record: Record, made: shards.Snapshot, durable: Path) -> dict[str, Any]:
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
        "splits": _table("split", [warehouse.Total(n, s.documents, s.text_bytes) for n, s in made.splits.items()]),
        "reused": record.reused,
    }


def _checked(made: shards.Snapshot, durable: Path) -> list[dg.AssetCheckResult]:
    """The snapshot's checks, run on its shards as they lie in the durable tier."""
    table = documents.hashes(documents.table_path(durable, made.documents["blake3"]))
    empty = checks.empty_splits(made)
    shared = checks.documents_in_both_splits(made, durable)
    sampled, wrong = checks.undecodable(made, durable, tokenizer.load(durable, made.tokenizer.sha256), table)
    outcomes: list[tuple[bool, dict[str, Any]]] = [
        (
            not empty,
            {
                "empty_splits": len(empty),
                **{f"{name}_documents": split.documents for name, split in made.splits.items()},
            },
        ),
        (shared == 0, {"documents_in_both": shared}),
        (wrong == 0 and sampled > 0, {"documents_decoded": sampled, "documents_wrong": wrong}),
    ]
    return [
        dg.AssetCheckResult(passed=passed, check_name=name, metadata=metadata)
        for name, (passed, metadata) in zip(CHECKS, outcomes, strict=True)
    ]


def _table(heading: str, totals: Any) -> dg.MarkdownMetadataValue:
    """Totals as a Markdown table."""
    rows = [f"| {heading} | documents | bytes of text |", "|---|---:|---:|"]
    rows += [f"| {each.name} | {each.documents} | {each.bytes} |" for each in totals]
    return dg.MetadataValue.md("\n".join(rows))

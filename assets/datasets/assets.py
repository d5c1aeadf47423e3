"""The lane of one dataset as Dagster assets: documents, tokenizer, snapshot.

Assets hand each other nothing in memory: every step finds what the one before it left in the durable tier, so
each can be materialised alone, in its own process, and doing it again does nothing.
"""

from pathlib import Path
from typing import Any

import dagster as dg

from assets import keys
from assets.datasets import checks, documents, metadata, snapshot, steps, tokenizer
from assets.datasets.difference import difference
from recipes.dataset import Dataset
from resources import warehouse
from resources.tiers import Tiers
from trainer import shards

CHECKS = {
    "no_empty_split": "Both splits hold documents and tokens.",
    "no_document_in_both_splits": "No text is kept in the train and in the validation split.",
    "tokens_decode_to_the_text": f"{checks.SAMPLE} documents decode back to texts of the documents table.",
    "no_drift": "Lengths and languages are distributed as in the parent snapshot, within the recipe's limit.",
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
        description=f"{recipe.description}\n\nAll documents and what became of each: kept, or left out by which rule. "
        "A document's split is decided by the hash of its text.",
    )
    def documents_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_documents(recipe, tiers.durable_path, context.log.info)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["blake3"]),
            metadata=metadata.of_documents(record, tiers.durable_path),
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
        description=f"Byte-level BPE with up to {recipe.tokenizer.vocab_size} tokens, trained on the first train split "
        "and kept as the dataset grows.",
    )
    def tokenizer_asset(tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_tokenizer(recipe, tiers.durable_path)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["sha256"]),
            metadata=metadata.of_tokenizer(record, tiers.durable_path),
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
    def snapshot_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        durable = tiers.durable_path
        record = steps.make_snapshot(recipe, durable, context.log.info)
        made = shards.read_manifest(durable, record.result["sha256"])
        parent = _parent(durable, made)
        results = _checked(recipe, made, parent, durable)
        if all(result.passed for result in results):
            snapshot.point(durable, recipe.name, made.sha256, made.source["digest"])
        told = metadata.of_snapshot(record, made, durable)
        if parent is not None:
            told |= metadata.of_difference(parent, difference(parent, made, durable))
        return dg.MaterializeResult(
            data_version=dg.DataVersion(made.sha256),
            metadata=told,
            check_results=results,
        )

    return snapshot_asset


def _parent(durable: Path, made: shards.Snapshot) -> shards.Snapshot | None:
    """The snapshot that the dataset points at until now, if it is another one and still there."""
    current = snapshot.current(durable, made.dataset)
    try:
        return None if current in (None, made.sha256) else shards.read_manifest(durable, str(current))
    except ValueError:
        return None


def _checked(
    recipe: Dataset, made: shards.Snapshot, parent: shards.Snapshot | None, durable: Path
) -> list[dg.AssetCheckResult]:
    """The snapshot's checks, run on what lies in the durable tier."""
    table = documents.table_path(durable, made.documents["blake3"])
    outcomes = [
        _splits(made),
        _disjoint(table),
        _decodes(made, table, durable),
        _steady(recipe, made, parent, durable),
    ]
    return [
        dg.AssetCheckResult(passed=passed, check_name=name, metadata=metadata)
        for name, (passed, metadata) in zip(CHECKS, outcomes, strict=True)
    ]


Outcome = tuple[bool, dict[str, Any]]


def _splits(made: shards.Snapshot) -> Outcome:
    empty = checks.empty_splits(made)
    counts = {f"{name}_documents": split.documents for name, split in made.splits.items()}
    return not empty, {"empty_splits": len(empty), **counts}


def _disjoint(table: Path) -> Outcome:
    shared = warehouse.documents_in_both_splits(table)
    return shared == 0, {"documents_in_both": shared}


def _decodes(made: shards.Snapshot, table: Path, durable: Path) -> Outcome:
    encoding = tokenizer.load(durable, made.tokenizer.sha256)
    sampled, wrong = checks.undecodable(made, durable, encoding, table)
    return wrong == 0 and sampled > 0, {"documents_decoded": sampled, "documents_wrong": wrong}


def _steady(recipe: Dataset, made: shards.Snapshot, parent: shards.Snapshot | None, durable: Path) -> Outcome:
    """Whether lengths and languages are those of the parent; a first snapshot has nothing to drift from."""
    tables = [documents.table_path(durable, each.documents["blake3"]) for each in (parent, made) if each is not None]
    if len(tables) < 2 or not tables[0].exists():
        return True, {"note": "there is no parent snapshot to compare with"}
    found = checks.drift(*(warehouse.statistics(table, top=1000) for table in tables))
    return max(found.values()) <= recipe.checks.drift, {**found, "limit": recipe.checks.drift}

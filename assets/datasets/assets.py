"""The lane of one dataset as Dagster assets: documents, tokenizer, snapshot.

Assets hand each other nothing in memory: every step finds what the one before it left in the durable tier, so
each can be materialised alone, in its own process, and doing it again does nothing.
"""

from pathlib import Path
from typing import Any

import dagster as dg

from assets import keys, pods
from assets.datasets import metadata, snapshot, steps, tokenizer
from assets.datasets.content import Content
from assets.datasets.difference import difference
from assets.datasets.images.content import IMAGES
from assets.datasets.texts import TEXTS
from recipes.dataset import Dataset
from resources.tiers import Tiers
from trainer.shards import Manifest


def dataset_assets(recipe: Dataset) -> list[dg.AssetsDefinition]:
    """The assets of a dataset recipe's lane, from its source to its snapshot; they need the resource `tiers`.

    Images have no tokenizer.
    """
    if recipe.images is not None:
        return [_documents(recipe, IMAGES), _snapshot(recipe, IMAGES, after=["documents"])]
    return [_documents(recipe, TEXTS), _tokenizer(recipe), _snapshot(recipe, TEXTS, after=["documents", "tokenizer"])]


def _documents(recipe: Dataset, content: Content[Any]) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.key(recipe.name, "documents"),
        group_name=keys.lane(recipe.name),
        kinds={"parquet", "duckdb"},
        owners=[recipe.owner],
        code_version=content.versions["documents"],
        op_tags=pods.tags("documents", recipe.resources),
        description=f"{recipe.description}\n\nAll documents and what became of each: kept, or left out by which rule. "
        "A document's split is decided by the hash of its content.",
    )
    def documents_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_documents(recipe, tiers.durable_path, context.log.info)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["blake3"]),
            metadata=content.of_documents(record, tiers.durable_path),
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
        op_tags=pods.tags("tokenizer", recipe.resources),
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


def _snapshot(recipe: Dataset, content: Content[Any], after: list[str]) -> dg.AssetsDefinition:
    key = keys.key(recipe.name, "snapshot")

    @dg.asset(
        key=key,
        deps=[keys.key(recipe.name, noun) for noun in after],
        group_name=keys.lane(recipe.name),
        kinds={"dataset"},
        owners=[recipe.owner],
        code_version=content.versions["snapshot"],
        op_tags=pods.tags("snapshot", recipe.resources),
        description=f"The documents as {content.shards_of} shards under one immutable manifest, which trainings name "
        "by its SHA-256. The dataset points at it once its checks have passed.",
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=text, blocking=True) for name, text in content.checks.items()
        ],
    )
    def snapshot_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        durable = tiers.durable_path
        record = content.make_snapshot(recipe, durable, context.log.info)
        made = content.read(durable, record.result["sha256"])
        parent = _parent(durable, made, content)
        results = _checked(recipe, made, parent, durable, content)
        if not any(_blocks(result) for result in results):
            snapshot.point(durable, recipe.name, made.sha256, made.source["digest"])
        told = content.of_snapshot(record, made, durable)
        if parent is not None:
            told |= metadata.of_difference(parent, difference(parent, made, durable))
        return dg.MaterializeResult(
            data_version=dg.DataVersion(made.sha256),
            metadata=told,
            check_results=results,
        )

    return snapshot_asset


def _parent(durable: Path, made: Manifest, content: Content[Any]) -> Any:
    """The snapshot that the dataset points at until now, if it is another one, of this kind, and still there."""
    current = snapshot.current(durable, made.dataset)
    try:
        return None if current in (None, made.sha256) else content.read(durable, str(current))
    except ValueError:
        return None


def _checked(
    recipe: Dataset, made: Manifest, parent: Manifest | None, durable: Path, content: Content[Any]
) -> list[dg.AssetCheckResult]:
    """The snapshot's checks, run on what lies in the durable tier."""
    outcomes = content.outcomes(recipe, made, parent, durable)
    return [
        dg.AssetCheckResult(
            passed=outcome.passed, check_name=name, metadata=outcome.metadata, severity=outcome.severity
        )
        for name, outcome in zip(content.checks, outcomes, strict=True)
    ]


def _blocks(result: dg.AssetCheckResult) -> bool:
    return not result.passed and result.severity is dg.AssetCheckSeverity.ERROR

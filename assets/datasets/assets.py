"""The lane of one dataset as Dagster assets: documents, tokenizer, snapshot.

Assets hand each other nothing in memory: each step reads what the step before it wrote to the durable tier. So each
asset can be materialised alone, in its own process, and materialising it again makes nothing.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import keys
from slipway.assets.datasets import inspection, page
from slipway.assets.datasets.building.build_log import BuildLog
from slipway.assets.datasets.engine import engine
from slipway.assets.datasets.kind import DatasetKind
from slipway.assets.datasets.kinds import dataset_kind
from slipway.assets.datasets.snapshots import difference, own_checks, pointer
from slipway.assets.datasets.snapshots.outcomes import Outcome, refusal
from slipway.assets.datasets.texts import metadata, steps, tokenizer
from slipway.assets.execution import pods
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.tiers import Tiers
from slipway.trainer.data.shards import SnapshotManifest

OBSERVED_SECONDS = 60.0
"""Between two observations of an asset that is being made."""


def dataset_assets(recipe: DatasetRecipe) -> list[dg.AssetsDefinition]:
    """The assets of a dataset recipe's lane, from its source to its snapshot; they need the resource `tiers`.

    Images have no tokenizer.
    """
    kind = dataset_kind(recipe)
    if recipe.images is not None:
        return [_documents(recipe, kind), _snapshot(recipe, kind, after=["documents"])]
    return [
        _documents(recipe, kind),
        _tokenizer(recipe),
        _snapshot(recipe, kind, after=["documents", "tokenizer"]),
    ]


def _documents(recipe: DatasetRecipe, kind: DatasetKind[Any]) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.key(recipe.name, "documents"),
        group_name=keys.lane(recipe.name),
        kinds={"parquet", "duckdb"},
        owners=[recipe.owner],
        code_version=kind.versions["documents"],
        op_tags=pods.tags("documents", recipe.resources),
        description=f"{recipe.description}\n\nAll documents and what became of each: kept, or left out by which rule. "
        "A document's split is decided by the hash of its content.",
    )
    def documents_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        own_checks.refuse_wrong(recipe, kind.table)
        report = _told_by(context)
        with engine(recipe, report):
            record = kind.make_documents(recipe, tiers.durable_path, report)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["blake3"]),
            metadata=kind.of_documents(record, tiers.durable_path),
        )

    return documents_asset


def _tokenizer(recipe: DatasetRecipe) -> dg.AssetsDefinition:
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
    def tokenizer_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_tokenizer(recipe, tiers.durable_path, _told_by(context))
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["sha256"]),
            metadata=metadata.of_tokenizer(record, tiers.durable_path),
        )

    return tokenizer_asset


def _snapshot(recipe: DatasetRecipe, kind: DatasetKind[Any], after: list[str]) -> dg.AssetsDefinition:
    key, checks = keys.key(recipe.name, "snapshot"), kind.checks | own_checks.described(recipe)

    @dg.asset(
        key=key,
        deps=[keys.key(recipe.name, noun) for noun in after],
        group_name=keys.lane(recipe.name),
        kinds={"dataset"},
        owners=[recipe.owner],
        code_version=kind.versions["snapshot"],
        op_tags=pods.tags("snapshot", recipe.resources),
        description=f"The documents as {kind.shards_of} shards under one immutable manifest, which trainings name "
        "by its SHA-256. The dataset points at it once its checks have passed.",
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=text, blocking=True) for name, text in checks.items()
        ],
    )
    def snapshot_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> Iterator[dg.MaterializeResult[None]]:
        durable, report = tiers.durable_path, _told_by(context)
        with engine(recipe, report):
            record = kind.make_snapshot(recipe, durable, report)
        made = kind.read(durable, record.result["sha256"])
        parent = _parent(durable, made, kind)
        outcomes = kind.outcomes(recipe, made, parent, durable, report)
        outcomes += own_checks.outcomes(recipe, made, parent, durable, kind.table)
        refused = refusal(recipe.name, checks, outcomes)
        if not refused:
            pointer.point(durable, recipe.name, made.sha256, made.source["digest"])
        shown = kind.of_snapshot(record, made, durable)
        if parent is not None:
            shown |= difference.metadata(parent, difference.difference(parent, made, durable))
        if not refused:
            found = inspection.inspect(durable, made, page.EXAMPLES)
            named = dict(zip(checks, outcomes, strict=True))
            page.write(durable, recipe.name, recipe.description, shown, named, found)
            shown |= {"page": dg.MetadataValue.url(page.address(recipe.name))}
        yield dg.MaterializeResult(
            data_version=dg.DataVersion(made.sha256),
            metadata=shown,
            check_results=_check_results(checks, outcomes),
        )
        if refused:
            raise ValueError(refused)

    return snapshot_asset


def _told_by(context: dg.AssetExecutionContext) -> BuildLog:
    """The log of a step. When the step takes long, the page of its asset says every minute how far it is, as `progress`
    of an observation."""
    observed = time.monotonic()

    def tell(line: str) -> None:
        nonlocal observed
        context.log.info(line)
        if time.monotonic() - observed >= OBSERVED_SECONDS:
            observed = time.monotonic()
            context.log_event(dg.AssetObservation(context.asset_key, metadata={"progress": line}))

    return tell


def _parent(durable: Path, made: SnapshotManifest, kind: DatasetKind[Any]) -> Any:
    """The snapshot that the dataset points at until now, if it is another one, of this kind, and still there."""
    current = pointer.current(durable, made.dataset)
    try:
        return None if current in (None, made.sha256) else kind.read(durable, str(current))
    except ValueError:
        return None


def _check_results(checks: Iterable[str], outcomes: list[Outcome]) -> list[dg.AssetCheckResult]:
    return [
        dg.AssetCheckResult(
            passed=outcome.passed,
            check_name=name,
            metadata=outcome.metadata,
            severity=outcome.severity,
            description=outcome.advice or None,
        )
        for name, outcome in zip(checks, outcomes, strict=True)
    ]

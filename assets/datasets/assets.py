"""The assets of one dataset: documents, tokenizer and snapshot; and the build of a dataset from the command line.

Assets pass nothing to each other in memory: each step reads the results of the step before it from the durable tier.
So each asset can be materialised alone, in its own process, and materialising it again does no work. The command line
materialises all of them in its own process, like a Dagster run.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import keys
from slipway.assets.datasets import inspection, page
from slipway.assets.datasets.building import workers
from slipway.assets.datasets.building.build_log import BuildLog
from slipway.assets.datasets.building.dask_cluster import DaskCluster
from slipway.assets.datasets.kinds import DatasetKind, dataset_kind
from slipway.assets.datasets.snapshots import difference, pointer
from slipway.assets.datasets.snapshots.outcomes import Outcome, own_checks, own_outcomes, refusal, refuse_wrong_queries
from slipway.assets.datasets.texts import metadata, steps, tokenizer
from slipway.assets.execution import pods
from slipway.assets.execution.user_errors import UserError, advised
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import platform
from slipway.resources.platform import DaskSettings
from slipway.resources.tiers import Tiers
from slipway.trainer.data.shards import SnapshotManifest

OBSERVED_SECONDS = 60.0
"""Seconds between two observations of the progress of an asset."""


def dataset_assets(recipe: DatasetRecipe) -> list[dg.AssetsDefinition]:
    """The assets of a dataset recipe, from its source to its snapshot; they need the resource `tiers`.

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
        description=f"{recipe.description}\n\nA table of all documents: whether each is kept, or which rule leaves it "
        "out. Materialise it to read and clean the new and changed files of the source.",
    )
    def documents_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        refuse_wrong_queries(recipe, kind.documents.table)
        log = _log_of(context)
        with engine(recipe, log):
            record = kind.make_documents(recipe, tiers.durable_path, log)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["blake3"]),
            metadata=kind.documents_metadata(record, tiers.durable_path),
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
        description=f"A byte-level BPE tokenizer with up to {recipe.tokenizer.vocab_size} tokens. It is trained "
        "once, on the first train split, and kept as the dataset grows; raise tokenizer.edition for a new one.",
    )
    def tokenizer_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        record = steps.make_tokenizer(recipe, tiers.durable_path, _log_of(context))
        return dg.MaterializeResult(
            data_version=dg.DataVersion(record.result["sha256"]),
            metadata=metadata.of_tokenizer(record, tiers.durable_path),
        )

    return tokenizer_asset


def _snapshot(recipe: DatasetRecipe, kind: DatasetKind[Any], after: list[str]) -> dg.AssetsDefinition:
    key = keys.key(recipe.name, "snapshot")
    checks = kind.checks | own_checks(recipe)

    @dg.asset(
        key=key,
        deps=[keys.key(recipe.name, noun) for noun in after],
        group_name=keys.lane(recipe.name),
        kinds={"dataset"},
        owners=[recipe.owner],
        code_version=kind.versions["snapshot"],
        op_tags=pods.tags("snapshot", recipe.resources),
        description=f"The kept documents as {kind.shards_of} shards under one immutable manifest. Materialise it to "
        "make a new snapshot; trainings use it once its checks have passed.",
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=text, blocking=True) for name, text in checks.items()
        ],
    )
    def snapshot_asset(context: dg.AssetExecutionContext, tiers: Tiers) -> Iterator[dg.MaterializeResult[None]]:
        durable = tiers.durable_path
        log = _log_of(context)
        with engine(recipe, log):
            record = kind.make_snapshot(recipe, durable, log)
        snapshot = kind.read(durable, record.result["sha256"])
        parent = _parent(durable, snapshot, kind)
        outcomes = kind.outcomes(recipe, snapshot, parent, durable, log)
        outcomes += own_outcomes(recipe, snapshot, parent, durable, kind.documents.table)
        refused = refusal(recipe.name, checks, outcomes)
        if not refused:
            pointer.point(durable, recipe.name, snapshot.sha256, snapshot.source["digest"])
        metadata = kind.snapshot_metadata(record, snapshot, durable)
        if parent is not None:
            metadata |= difference.metadata(parent, difference.difference(parent, snapshot, durable))
        if not refused:
            inspected = inspection.inspect(durable, snapshot, page.EXAMPLES)
            named = dict(zip(checks, outcomes, strict=True))
            page.write(durable, recipe.name, recipe.description, metadata, named, inspected)
            metadata |= {"page": dg.MetadataValue.url(page.address(recipe.name))}
        yield dg.MaterializeResult(
            data_version=dg.DataVersion(snapshot.sha256),
            metadata=metadata,
            check_results=_check_results(checks, outcomes),
        )
        if refused:
            raise ValueError(refused)

    return snapshot_asset


def engine(recipe: DatasetRecipe, log: BuildLog) -> contextlib.AbstractContextManager[None]:
    """A context in which the dataset is built by the engine of its recipe, or else of the platform.

    The engine is this machine's processors, or the Dask cluster in the platform's settings. It decides where documents
    are read, cleaned and encoded, but does not affect the result.

    Raises ValueError for a recipe that names Dask if the platform's settings have no Dask cluster.
    """
    if recipe.engine == "local":
        return workers.on(None)
    settings: DaskSettings | None = platform.dask_here()
    if settings is not None:
        return workers.on(DaskCluster(settings.scheduler, Path(settings.certificates), log))
    if recipe.engine == "dask":
        raise ValueError(
            f"dataset {recipe.name}: engine: found dask, expected local, or a section compute.dask in the platform's "
            "settings (SLIPWAY_PLATFORM)"
        )
    return workers.on(None)


def _log_of(context: dg.AssetExecutionContext) -> BuildLog:
    """The log of a step. In a long step, the asset's page shows the progress every minute, as `progress` of an
    observation."""
    observed = time.monotonic()

    def tell(line: str) -> None:
        nonlocal observed
        context.log.info(line)
        if time.monotonic() - observed >= OBSERVED_SECONDS:
            observed = time.monotonic()
            context.log_event(dg.AssetObservation(context.asset_key, metadata={"progress": line}))

    return tell


def _parent(durable: Path, snapshot: SnapshotManifest, kind: DatasetKind[Any]) -> Any:
    """The dataset's present snapshot, if it differs from the new one, is of the same kind, and still exists."""
    current = pointer.current(durable, snapshot.dataset)
    try:
        if current in (None, snapshot.sha256):
            return None
        return kind.read(durable, str(current))
    except ValueError:
        return None


def _check_results(checks: Iterable[str], outcomes: list[Outcome]) -> list[dg.AssetCheckResult]:
    return [
        dg.AssetCheckResult(
            passed=outcome.passed,
            check_name=name,
            metadata=outcome.metadata,
            severity=outcome.severity,
            description=outcome.remedy or None,
        )
        for name, outcome in zip(checks, outcomes, strict=True)
    ]


def build(recipe: DatasetRecipe, tiers: Tiers, instance: dg.DagsterInstance, log: Callable[[str], None]) -> str:
    """Build a snapshot of the present source and point the dataset at it; returns its SHA-256.

    Unchanged parts are reused. Raises the errors of the steps (ValueError for an unusable source), and ValueError if
    the snapshot does not pass a check.
    """
    definitions = dg.Definitions(
        assets=dataset_assets(recipe), resources={"tiers": tiers}, loggers={"lines": _lines(log)}
    )
    job = advised(definitions, stacks=False).resolve_implicit_global_asset_job_def()
    try:
        job.execute_in_process(instance=instance, run_config={"loggers": {"lines": {}}})
    except UserError as user_error:
        raise user_error.error from None
    current = pointer.current(tiers.durable_path, recipe.name)
    assert current is not None
    return current


def _lines(log: Callable[[str], None]) -> dg.LoggerDefinition:
    """A logger that passes the lines of the steps on, without Dagster's own events."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message_fields = getattr(record, "dagster_meta", {})
            if not message_fields.get("dagster_event"):
                log(str(message_fields.get("orig_message", record.getMessage())))

    def lines(_: dg.InitLoggerContext) -> logging.Logger:
        logger = logging.Logger("slipway", logging.INFO)
        logger.addHandler(Handler())
        return logger

    return dg.LoggerDefinition(lines)

"""Staged shards: on each node's NVMe, a verified copy of the snapshot that trainings there will read."""

from typing import Any

import dagster as dg

from assets import keys
from assets.datasets import snapshot
from recipes.dataset import Dataset
from resources.tiers import Tiers
from trainer import staging
from trainer.progress import every

LOG_SECONDS = 10.0
BANDWIDTH = "read_bandwidth"


def staging_assets(recipe: Dataset) -> list[dg.AssetsDefinition]:
    """The staged shards of one dataset lane, a partition for each node."""
    key = keys.key(recipe.name, "staged_shards")

    @dg.asset(
        key=key,
        deps=[keys.key(recipe.name, "snapshot")],
        partitions_def=keys.NODES,
        backfill_policy=dg.BackfillPolicy.single_run(),
        check_specs=[
            dg.AssetCheckSpec(
                BANDWIDTH,
                asset=key,
                description="The durable tier can give all nodes the snapshot in the time set for it",
            )
        ],
        group_name=keys.lane(recipe.name),
        kinds={"nvme"},
        owners=[recipe.owner],
        description=(
            "The snapshot's shards on a node's NVMe, verified by BLAKE3 while they are copied. A marker named by the "
            "manifest's SHA-256 makes a second staging a matter of milliseconds."
        ),
    )
    def staged_shards(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        current = snapshot.current(tiers.durable_path, recipe.name)
        if current is None:
            raise dg.Failure(
                f"{recipe.name}: there is no snapshot to stage: materialise {recipe.name}'s snapshot first"
            )
        assert keys.NODES.name is not None
        nodes = sorted({*context.instance.get_dynamic_partitions(keys.NODES.name), *context.partition_keys})
        warnings: list[str] = []
        for node in context.partition_keys:
            staged = _stage(context, tiers, current, node, nodes)
            warnings = tiers.bandwidth_warnings(staged.bytes, len(nodes))
            context.add_asset_metadata(_metadata(node, staged, tiers), partition_key=node)
        for warning in warnings:
            context.log.warning(f"{recipe.name}: {warning}")
        check = dg.AssetCheckResult(
            check_name=BANDWIDTH,
            passed=not warnings,
            severity=dg.AssetCheckSeverity.WARN,
            description="; ".join(warnings) or None,
        )
        return dg.MaterializeResult(data_version=dg.DataVersion(current), check_results=[check])

    return [staged_shards]


def _stage(
    context: dg.AssetExecutionContext, tiers: Tiers, current: str, node: str, nodes: list[str]
) -> staging.Staged:
    """Stage on one node, with progress and what was wrong with origins in the log."""
    report = every(LOG_SECONDS, lambda progress: context.log.info(f"{node}: {progress}"))
    staged = staging.stage(current, tiers.staging_origins(node, nodes), tiers.nvme_path(node), report)
    for fault in staged.faults:
        context.log.warning(f"{node}: repaired from another origin: {fault}")
    return staged


def _metadata(node: str, staged: staging.Staged, tiers: Tiers) -> dict[str, Any]:
    return {
        "node": node,
        "shards": staged.shards,
        "bytes": staged.bytes,
        "copied_shards": staged.copied_shards,
        "copied_bytes": staged.copied_bytes,
        "seconds": staged.seconds,
        "gigabytes_per_second": staged.copied_bytes / staged.seconds / 1e9,
        "origin_faults": list(staged.faults),
        "dagster/uri": str(tiers.nvme_path(node)),
    }

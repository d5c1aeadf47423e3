"""Staged shards: a verified copy on each node's NVMe of the snapshot that trainings there read."""

from typing import Any

import dagster as dg

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.execution import on_nodes, pods
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import receipts
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.trainer.node_task import Result, StageTask

BANDWIDTH = "read_bandwidth"
BY_THE_RANKS = "trainings on this node copy the shards that their steps read (placement.staging: auto, parts, window)"


def staging_assets(recipe: DatasetRecipe) -> list[dg.AssetsDefinition]:
    """The staged shards of one dataset, with a partition for each node."""
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
                description="The durable tier is fast enough to copy the snapshot to all nodes in the configured time",
            )
        ],
        group_name=keys.lane(recipe.name),
        kinds={"nvme"},
        op_tags=pods.tags("staged_shards"),
        owners=[recipe.owner],
        description=(
            "A copy of the dataset's current snapshot on a node's NVMe, verified during the copy. Materialise it to "
            "stage the shards before a training starts; a node that already has the snapshot is done in milliseconds."
        ),
    )
    def staged_shards(context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute) -> dg.MaterializeResult:  # type: ignore[type-arg]
        current = pointer.current(tiers.durable_path, recipe.name)
        if current is None:
            raise dg.Failure(
                f"{recipe.name}: there is no snapshot to stage: materialise {recipe.name}'s snapshot first"
            )
        assert keys.NODES.name is not None
        nodes = sorted({*context.instance.get_dynamic_partitions(keys.NODES.name), *context.partition_keys})
        results = _stage(context, compute, tiers, current, nodes)
        warnings: list[str] = []
        for node, result in results.items():
            warnings = tiers.bandwidth_warnings(result["bytes"], len(nodes))
            context.add_asset_metadata(_metadata(node, result, tiers), partition_key=node)
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
    context: dg.AssetExecutionContext, compute: Compute, tiers: Tiers, current: str, nodes: list[str]
) -> dict[str, Result]:
    """Stage on each node of this run. A node that succeeds gets its receipt even if another one fails."""
    tasks = {
        node: StageTask(current, tiers.staging_origins(node, nodes), str(tiers.nvme_path(node)))
        for node in context.partition_keys
    }
    results = dict[str, Result]()
    failed = list[str]()
    for node, done in on_nodes.run(context, compute, tiers, tasks).items():
        if done.failure:
            failed.append(f"{node}: {done.failure}")
            continue
        results[node] = done.result
        if done.result["too_large"]:
            context.log.info(f"{node}: the snapshot is not staged: {done.result['too_large']}; {BY_THE_RANKS}")
            continue
        receipts.note(tiers.durable_path, current, node, done.result["bytes"])
        for fault in done.result["faults"]:
            context.log.warning(f"{node}: repaired from another origin: {fault}")
    if failed:
        raise dg.Failure("; ".join(failed))
    return results


def _metadata(node: str, result: Result, tiers: Tiers) -> dict[str, Any]:
    return {
        "node": node,
        **{name: result[name] for name in ("shards", "bytes", "copied_shards", "copied_bytes", "seconds")},
        "gigabytes_per_second": result["copied_bytes"] / result["seconds"] / 1e9 if result["seconds"] else 0.0,
        "held": f"nothing yet: {result['too_large']}; {BY_THE_RANKS}" if result["too_large"] else "whole",
        "origin_faults": list(result["faults"]),
        "dagster/uri": str(tiers.nvme_path(node)),
    }

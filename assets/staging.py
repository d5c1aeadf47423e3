"""Staged shards: on each node's NVMe, a verified copy of the snapshot that trainings there will read."""

import dagster as dg

from assets import keys
from assets.datasets import snapshot
from recipes.dataset import Dataset
from resources.tiers import Tiers
from trainer import staging


def staging_assets(recipe: Dataset) -> list[dg.AssetsDefinition]:
    """The staged shards of one dataset lane, a partition for each node."""

    @dg.asset(
        key=keys.key(recipe.name, "staged_shards"),
        deps=[keys.key(recipe.name, "snapshot")],
        partitions_def=keys.NODES,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=keys.lane(recipe.name),
        kinds={"nvme"},
        owners=[recipe.owner],
        description=(
            "The snapshot's shards on a node's NVMe, verified by BLAKE3 while they are copied. A marker named by the "
            "manifest's SHA-256 makes a second staging a matter of milliseconds."
        ),
    )
    def staged_shards(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult[None]:
        current = snapshot.current(tiers.durable_path, recipe.name)
        if current is None:
            raise dg.Failure(
                f"{recipe.name}: there is no snapshot to stage: materialise {recipe.name}'s snapshot first"
            )
        for node in context.partition_keys:
            staged = staging.stage(current, tiers.durable_path, tiers.nvme_path(node))
            context.add_asset_metadata(
                {
                    "node": node,
                    "shards": staged.shards,
                    "bytes": staged.bytes,
                    "copied_shards": staged.copied_shards,
                    "copied_bytes": staged.copied_bytes,
                    "seconds": staged.seconds,
                    "dagster/uri": str(tiers.nvme_path(node)),
                },
                partition_key=node,
            )
        return dg.MaterializeResult(data_version=dg.DataVersion(current))

    return [staged_shards]

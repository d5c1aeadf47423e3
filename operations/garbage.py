"""Garbage collection: removes from the durable tier what no snapshot, training or model refers to.

It has no schedule: what it removes has to be built again from its source. A run is dry unless `dry_run` is false.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets.datasets import garbage
from slipway.assets.datasets.building.build_log import BuildLog, quiet
from slipway.assets.datasets.garbage import Garbage
from slipway.assets.execution import pods
from slipway.operations import references
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.trainer.base.quantities import counted
from slipway.trainer.base.units import HOUR


class GarbageConfig(dg.Config):
    """What stays although nothing refers to it."""

    snapshots: int = Field(default=5, ge=0, description="So many snapshots of each dataset, besides its current one")
    hours: float = Field(default=24.0, ge=0, description="Files younger than this: a build may be about to use them")
    dry_run: bool = Field(default=True, description="Remove nothing, and list what would go")


@dg.op(
    description="Removes what no kept snapshot, unfinished training or registered model refers to.",
    tags=pods.tags("garbage"),
)
def collect_garbage(
    context: dg.OpExecutionContext, config: GarbageConfig, tiers: Tiers, tracking: Tracking
) -> dg.Output[None]:
    """Raises as `collected` does."""
    collection = collected(tiers, tracking, config.snapshots, config.hours, config.dry_run, context.log.info)
    context.log.info(
        f"{'would remove' if config.dry_run else 'removed'} "
        f"{counted(len(collection.files), 'file')} of {collection.bytes / 1e9:.3f} GB; "
        f"snapshots that stay: {collection.kept_snapshots}"
    )
    names = [str(path.relative_to(tiers.durable_path)) for path in collection.files[:100]]
    figures: dict[str, Any] = {"files": len(collection.files), "bytes": collection.bytes, "first": names}
    return dg.Output(None, metadata=figures | {"snapshots_kept": collection.kept_snapshots})


def collected(
    tiers: Tiers, tracking: Tracking, snapshots: int, hours: float, dry_run: bool, report: BuildLog = quiet
) -> Garbage:
    """Remove what nothing refers to, unless this is a dry run; the other arguments as in `GarbageConfig`.

    Raises what the registry raises when it is away, and OSError and ValueError where a training's records cannot be
    read: the references are not known then.
    """
    durable = tiers.durable_path

    def referred() -> set[str]:
        return references.snapshots_in_use(tiers) | Registry(tracking, durable).snapshots_in_use()

    return garbage.collect(durable, referred, snapshots, hours * HOUR, dry_run, report)


@dg.job(
    name="garbage_collection",
    description="Removes from the durable tier what nothing refers to any more; dry unless `dry_run` is false.",
)
def job() -> None:
    collect_garbage()

"""Garbage collection: a job that removes from the durable tier what no snapshot, training or model refers to.

It has no schedule: what is removed here has to be built again from its source. A run is dry unless told otherwise.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from assets import pods
from assets.datasets import garbage
from resources.compute import trainings
from resources.registry import Registry
from resources.tiers import Tiers
from resources.tracking import Tracking


class Keep(dg.Config):
    """What stays besides what is referred to."""

    snapshots: int = Field(default=5, ge=0, description="Of each dataset, before the one that it points at")
    hours: float = Field(default=24.0, ge=0, description="Files younger than this, which a build may be about to use")
    dry_run: bool = Field(default=True, description="Remove nothing, and say what would go")


@dg.op(
    description="Removes what no kept snapshot, unfinished training or registered model refers to.",
    tags=pods.tags("garbage"),
)
def collect_garbage(context: dg.OpExecutionContext, config: Keep, tiers: Tiers, tracking: Tracking) -> dg.Output[None]:
    """Raises what the registry raises when it is away: what it refers to is not known then."""
    durable = tiers.durable_path
    referred = trainings(tiers).snapshots_in_use() | Registry(tracking, durable).snapshots_in_use()
    found = garbage.collect(durable, referred, config.snapshots, config.hours * 3600, config.dry_run)
    context.log.info(
        f"{'would remove' if config.dry_run else 'removed'} {len(found.files)} files of {found.bytes / 1e9:.3f} GB; "
        f"{found.kept_snapshots} snapshots stay"
    )
    names = [str(path.relative_to(durable)) for path in found.files[:100]]
    told: dict[str, Any] = {"files": len(found.files), "bytes": found.bytes, "first": names}
    return dg.Output(None, metadata=told | {"snapshots_kept": found.kept_snapshots})


@dg.job(description="Removes from the durable tier what nothing refers to any more; dry unless told otherwise.")
def garbage_collection() -> None:
    collect_garbage()

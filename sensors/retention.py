"""Retention: each week, what was not used for long goes from the nodes' NVMe, and so does what no longer fits.

What a process reads is under a lease and never goes, so that the schedule need not ask what is running.
"""

import dataclasses
from typing import Any

import dagster as dg
from pydantic import Field

from resources.compute import Compute
from resources.tiers import Tiers
from trainer.retention import Retained, retain

WEEKLY = "0 2 * * 0"
"""Sunday, 02:00."""


class Limits(dg.Config):
    """How much may stay on a node's NVMe, and for how long without use."""

    gigabytes: float = Field(default=800.0, ge=0, description="Most that staged shards may take on a node")
    days: float = Field(default=7.0, ge=0, description="A snapshot that was not used for longer goes")
    dry_run: bool = Field(default=False, description="Remove nothing, and say what would go")


@dg.op(description="Brings each ready node's NVMe under the limits; what is under a lease stays.")
def retain_on_nodes(context: dg.OpExecutionContext, config: Limits, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """One node after the other; one that fails does not keep the others from their turn."""
    done: dict[str, dg.MetadataValue[Any]] = {}
    failed: list[str] = []
    for node in compute.fleet().nodes():
        if not node.ready:
            context.log.info(f"{node.name}: not ready: left for the next time")
            continue
        try:
            retained = retain(tiers.nvme_path(node.name), config.gigabytes, config.days, config.dry_run)
        except OSError as error:
            failed.append(f"{node.name}: {error}")
            continue
        context.log.info(f"{node.name}: {_said(retained, config.dry_run)}")
        done[node.name] = dg.MetadataValue.json(dataclasses.asdict(retained))
    if failed:
        raise dg.Failure("; ".join(failed), metadata=done)
    return dg.Output(None, metadata=done)


@dg.job(description="Removes from the nodes' NVMe what was not used for long or does not fit; never what is in use.")
def nvme_retention() -> None:
    retain_on_nodes()


retention = dg.ScheduleDefinition(
    name="nvme_retention_weekly",
    cron_schedule=WEEKLY,
    job=nvme_retention,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each Sunday at 02:00.",
)


def _said(retained: Retained, dry_run: bool) -> str:
    return (
        f"{'would remove' if dry_run else 'removed'} {len(retained.removed_snapshots)} snapshots, "
        f"{retained.removed_shards} shards of {retained.removed_bytes / 1e9:.2f} GB and {retained.removed_partial} "
        f"partial files; {retained.kept_snapshots} snapshots of {retained.kept_bytes / 1e9:.2f} GB stay, "
        f"{retained.leased_snapshots} of them in use"
    )

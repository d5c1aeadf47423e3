"""Retention: each week, what was not used for long goes from the nodes' NVMe, and so does what no longer fits.

What a process reads is under a lease and never goes, so that the schedule need not ask what is running. The job
objects of trainings that ended long ago, and their logs, go with it.
"""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from assets import on_nodes, pods
from resources import staged
from resources.compute import Compute, trainings, trials
from resources.node_tasks import by_jobs
from resources.tiers import Tiers
from resources.training_job import job_name
from resources.training_store import Trainings
from trainer.node_task import Result, Retain

WEEKLY = "0 2 * * 0"
"""Sunday, 02:00."""


class Limits(dg.Config):
    """How much may stay on a node's NVMe, and for how long without use."""

    gigabytes: float = Field(default=800.0, ge=0, description="Most that staged shards may take on a node")
    days: float = Field(default=7.0, ge=0, description="A snapshot that was not used for longer goes")
    dry_run: bool = Field(default=False, description="Remove nothing, and say what would go")


@dg.op(
    description="Brings each ready node's NVMe under the limits; what is under a lease stays.",
    tags=pods.tags("node_retention"),
)
def retain_on_nodes(context: dg.OpExecutionContext, config: Limits, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """A node that fails does not keep the others from theirs."""
    tasks: dict[str, Retain] = {}
    for node in compute.fleet().nodes():
        if node.ready:
            folder = str(tiers.nvme_path(node.name))
            tasks[node.name] = Retain(folder, config.gigabytes, config.days, config.dry_run)
        else:
            context.log.info(f"{node.name}: not ready: left for the next time")
    done: dict[str, dg.MetadataValue[Any]] = {}
    failed: list[str] = []
    for name, ended in on_nodes.run(context, compute, tiers, tasks).items():
        if ended.failure:
            failed.append(f"{name}: {ended.failure}")
            continue
        if not config.dry_run:
            staged.forget(tiers.durable_path, name, ended.result["removed_snapshots"])
        context.log.info(f"{name}: {_said(ended.result, config.dry_run)}")
        done[name] = dg.MetadataValue.json(ended.result)
    if failed:
        raise dg.Failure("; ".join(failed), metadata=done)
    return dg.Output(None, metadata=done)


class Age(dg.Config):
    """How long job objects stay."""

    days: float = Field(default=7.0, ge=0, description="After the end of the training")


@dg.op(
    description="Releases the job objects and logs of trainings that ended long ago and are owed nothing.",
    tags=pods.tags("node_retention"),
)
def release_jobs(context: dg.OpExecutionContext, config: Age, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """Their ledgers, exits and checkpoints stay; only what the launcher keeps of them goes.

    So do the outcomes of node tasks of that age.
    """
    launcher, before = compute.launcher(), time.time() - config.days * 86_400
    roots = [trainings(tiers), *trials(tiers).values()]
    jobs = [job for known in roots for job in _ended(known, before)]
    by_jobs.forget(tiers.durable_path, before)
    released = sum(launcher.release(job) for job in jobs)
    context.log.info(f"released {released} of {len(jobs)} jobs that ended more than {config.days:g} days ago")
    return dg.Output(None, metadata={"released": released})


def _ended(known: Trainings, before: float) -> Iterator[str]:
    """The jobs of trainings that ended before a time, seconds since the epoch, and are owed nothing."""
    for store in map(known.store, known.known()):
        claim, ended = store.newest_claim(), store.exit()
        if claim and ended and ended.at < before and not known.owed(store.id):
            yield from (job_name(store.id, number + 1) for number in range(claim.token.incarnation))


@dg.job(description="Removes from the nodes' NVMe what was not used for long or does not fit; never what is in use.")
def nvme_retention() -> None:
    retain_on_nodes()
    release_jobs()


retention = dg.ScheduleDefinition(
    name="nvme_retention_weekly",
    cron_schedule=WEEKLY,
    job=nvme_retention,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each Sunday at 02:00.",
)


def _said(retained: Result, dry_run: bool) -> str:
    return (
        f"{'would remove' if dry_run else 'removed'} {len(retained['removed_snapshots'])} snapshots, "
        f"{retained['removed_shards']} shards of {retained['removed_bytes'] / 1e9:.2f} GB and "
        f"{retained['removed_partial']} partial files; {retained['kept_snapshots']} snapshots of "
        f"{retained['kept_bytes'] / 1e9:.2f} GB stay, {retained['leased_snapshots']} of them in use"
    )

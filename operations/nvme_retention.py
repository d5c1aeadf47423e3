"""NVMe retention: each week, removes from the nodes' NVMe what was not used for long, and what no longer fits.

What a process reads is under a lease and is never removed, so that the schedule need not ask what is running. The same
job releases the job objects of trainings that ended long ago, with their logs.
"""

import time
from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets.execution import on_nodes, pods
from slipway.operations import for_each_training
from slipway.resources import receipts
from slipway.resources.compute.protocol import Compute
from slipway.resources.node_tasks import by_jobs
from slipway.resources.short_jobs import attempts
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import all_trainings, all_trials
from slipway.trainer.base.quantities import counted
from slipway.trainer.base.units import DAY
from slipway.trainer.node_task import Result, RetainTask


class NvmeLimits(dg.Config):
    """How much may stay on a node's NVMe, and for how long without use."""

    gigabytes: float = Field(default=800.0, ge=0, description="Most that staged shards may take on a node")
    days: float = Field(default=7.0, ge=0, description="A snapshot that was not used for longer goes")
    dry_run: bool = Field(default=False, description="Remove nothing, and list what would go")


@dg.op(
    description="Brings each ready node's NVMe under the limits; what is under a lease stays.",
    tags=pods.tags("node_retention"),
)
def retain_on_nodes(
    context: dg.OpExecutionContext, config: NvmeLimits, tiers: Tiers, compute: Compute
) -> dg.Output[None]:
    """Each ready node does its own task; raises Failure with what went wrong on each node that failed."""
    tasks: dict[str, RetainTask] = {}
    for node in compute.fleet().nodes():
        if node.ready:
            folder = str(tiers.nvme_path(node.name))
            tasks[node.name] = RetainTask(folder, config.gigabytes, config.days, config.dry_run)
        else:
            context.log.info(f"{node.name}: not ready, left for the next run")
    done: dict[str, dg.MetadataValue[Any]] = {}
    failed: list[str] = []
    for name, ended in on_nodes.run(context, compute, tiers, tasks).items():
        if ended.failure:
            failed.append(f"{name}: {ended.failure}")
            continue
        if not config.dry_run:
            receipts.forget(tiers.durable_path, name, ended.result["removed_snapshots"])
        context.log.info(f"{name}: {_sentence(ended.result, config.dry_run)}")
        done[name] = dg.MetadataValue.json(ended.result)
    if failed:
        raise dg.Failure("; ".join(failed), metadata=done)
    return dg.Output(None, metadata=done)


def _sentence(retained: Result, dry_run: bool) -> str:
    return (
        f"{'would remove' if dry_run else 'removed'} {counted(len(retained['removed_snapshots']), 'snapshot')}, "
        f"{counted(retained['removed_shards'], 'shard')} of {retained['removed_bytes'] / 1e9:.2f} GB and "
        f"{counted(retained['removed_partial'], 'partial file')}; what stays: "
        f"{counted(retained['kept_snapshots'], 'snapshot')} of "
        f"{retained['kept_bytes'] / 1e9:.2f} GB, {retained['leased_snapshots']} of them in use"
    )


class JobAge(dg.Config):
    """How long job objects stay."""

    days: float = Field(default=7.0, ge=0, description="After the end of the training")


@dg.op(
    description="Releases the job objects and logs of trainings that ended long ago and have no open duty.",
    tags=pods.tags("node_retention"),
)
def release_jobs(context: dg.OpExecutionContext, config: JobAge, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """Ledgers, exits and checkpoints stay; only the launcher's jobs go, and what old node tasks and short jobs left."""
    launcher = compute.launcher()
    before = time.time() - config.days * DAY
    collections = [all_trainings(tiers), *all_trials(tiers).values()]
    by_jobs.remove_outcomes(tiers.durable_path, before)
    attempts.remove_old(tiers.durable_path, before, launcher.release)
    released: list[str] = []
    failed: list[str] = []
    for root in collections:
        pending = root.with_pending_work()

        def release(facts: TrainingFacts, pending: set[str] = pending) -> None:
            if facts.ended and facts.ended.at < before and facts.id not in pending:
                jobs = (job_name(facts.id, number + 1) for number in range(facts.incarnation))
                released.extend(job for job in jobs if launcher.release(job))

        failed += for_each_training.apply(context, root.stores(), release)
    context.log.info(f"released {counted(len(released), 'job')} that ended more than {config.days:g} days ago")
    if failed:
        raise dg.Failure("; ".join(failed), metadata={"released": len(released)})
    return dg.Output(None, metadata={"released": len(released)})


@dg.job(
    name="nvme_retention",
    description="Removes from the nodes' NVMe what was not used for long or does not fit; never what is in use.",
)
def job() -> None:
    retain_on_nodes()
    release_jobs()


schedule = dg.ScheduleDefinition(
    name="nvme_retention_weekly",
    cron_schedule="0 2 * * 0",
    job=job,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each Sunday at 02:00.",
)

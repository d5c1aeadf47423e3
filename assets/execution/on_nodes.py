"""Node tasks in a run: the run's log shows their progress, and cancelling the run stops them.

A run that is only interrupted (by an eviction of its pod) leaves its tasks to the next run, which adopts them.
"""

from collections.abc import Mapping

import dagster as dg
from dagster import DagsterExecutionInterruptedError, DagsterRunStatus

from slipway.resources.compute.protocol import Compute
from slipway.resources.node_tasks.protocol import NodeTasks, TaskOutcome
from slipway.resources.tiers import Tiers
from slipway.trainer.node_task import Task


def run(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    compute: Compute,
    tiers: Tiers,
    tasks: Mapping[str, Task],
    nodes: NodeTasks | None = None,
) -> dict[str, TaskOutcome]:
    """Run a task on each node and wait for all of them. Raises `slipway.resources.errors.Unavailable`.

    `nodes` runs the tasks; the default is for nodes in service.
    """
    nodes = nodes or compute.node_tasks(tiers)
    try:
        return nodes.run(tasks, context.log.info)
    except DagsterExecutionInterruptedError:
        dagster_run = context.instance.get_run_by_id(context.run.run_id)
        if dagster_run is not None and dagster_run.status is DagsterRunStatus.CANCELING:
            nodes.stop(tasks)
        raise

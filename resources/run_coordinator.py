"""Run coordinator: Dagster's queue, which also notes on each run its kind, who asked for it, and who ended it.

The kind is that of the run's own steps (`slipway.resources.run_kinds`): so a run counts among its like whoever launches
it, a sensor, a schedule, a backfill, or a person. The webserver knows the person (`slipway.resources.access`). The tags
are set on every run, those of people on every run that a person asked for, also to nobody: what a person typed into the
launchpad says nothing about either.
"""

from contextvars import ContextVar

from dagster import DagsterInstance, DagsterRun, QueuedRunCoordinator, RunsFilter
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import BACKFILL_ID_TAG, PARENT_BACKFILL_ID_TAG
from dagster._core.workspace.context import WorkspaceRequestContext

from slipway.resources import run_kinds
from slipway.resources.identity import CANCELLED_TAG, USER_TAG

requesting_person: ContextVar[str] = ContextVar("asking", default="")
"""In the webserver: the person whose request is answered now; empty where nobody is known."""


class AttributingRunCoordinator(QueuedRunCoordinator):
    """The queue, with the kinds of runs and the names of people."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        run = context.dagster_run
        tags = _kind(self._instance, run)
        if CANCELLED_TAG in run.tags:
            tags[CANCELLED_TAG] = ""
        if isinstance(context.workspace, WorkspaceRequestContext) and context.workspace.source is not None:
            tags[USER_TAG] = context.workspace.get_viewer_tags().get(USER_TAG, "")
        elif PARENT_BACKFILL_ID_TAG in run.tags:  # a backfill that is launched again has the tags of the first
            tags[USER_TAG] = ""
        self._instance.add_run_tags(run.run_id, tags)
        return super().submit_run(context)

    def cancel_run(self, run_id: str) -> bool:
        """As Dagster's, with the person's name on the run."""
        self._instance.add_run_tags(run_id, {CANCELLED_TAG: requesting_person.get()})
        return super().cancel_run(run_id)


def _kind(instance: DagsterInstance, run: DagsterRun) -> dict[str, str]:
    """The tags of the run's kind; what it was tagged with before, by a person or as a copy, does not hold."""
    steps = []
    if run.execution_plan_snapshot_id is not None:
        plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
        steps = [step.tags or {} for step in plan.steps if step.key in plan.step_keys_to_execute]
    return run_kinds.tags(run_kinds.of_steps(steps))


def note_cancellation(instance: DagsterInstance, backfill: str, person: str) -> None:
    """Note on the runs of a backfill who cancels it. The daemon ends them later, past the coordinator, for nobody."""
    of_backfill = RunsFilter(tags={BACKFILL_ID_TAG: backfill}, statuses=list(NOT_FINISHED_STATUSES))
    for run in instance.get_run_ids(of_backfill):
        instance.add_run_tags(run, {CANCELLED_TAG: person})

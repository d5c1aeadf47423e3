"""Run coordinator: Dagster's queue, which also tags each run with its kind, who started it, and who ended it.

The kind follows from the steps of the run (`slipway.resources.run_kinds`), so it is the same whether a sensor, a
schedule, a backfill or a person launches the run. The webserver knows the person (`slipway.resources.access`). The
coordinator always sets the kind, and sets the person on every run from the webserver, even to "" if unknown. So it
overwrites any such tag that a person typed into the launchpad.
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
"""In the webserver: the person whose request is being handled, or "" if unknown."""


class AttributingRunCoordinator(QueuedRunCoordinator):
    """Dagster's queue, which tags runs with their kinds and with the names of people."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        run = context.dagster_run
        tags = _kind(self._instance, run)
        if CANCELLED_TAG in run.tags:
            tags[CANCELLED_TAG] = ""
        if isinstance(context.workspace, WorkspaceRequestContext) and context.workspace.source is not None:
            tags[USER_TAG] = context.workspace.get_viewer_tags().get(USER_TAG, "")
        elif PARENT_BACKFILL_ID_TAG in run.tags:  # a re-launched backfill copies the tags of the first one
            tags[USER_TAG] = ""
        self._instance.add_run_tags(run.run_id, tags)
        return super().submit_run(context)

    def cancel_run(self, run_id: str) -> bool:
        """Cancel a run, and tag it with the person who cancels it."""
        self._instance.add_run_tags(run_id, {CANCELLED_TAG: requesting_person.get()})
        return super().cancel_run(run_id)


def _kind(instance: DagsterInstance, run: DagsterRun) -> dict[str, str]:
    """The tags of the run's kind, from its steps. They overwrite what a person typed or a re-execution copied."""
    steps = []
    if run.execution_plan_snapshot_id is not None:
        plan = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
        steps = [step.tags or {} for step in plan.steps if step.key in plan.step_keys_to_execute]
    return run_kinds.tags(run_kinds.of_steps(steps))


def note_cancellation(instance: DagsterInstance, backfill: str, person: str) -> None:
    """Tag the runs of a backfill with who cancels it. The daemon ends them later without calling the coordinator."""
    of_backfill = RunsFilter(tags={BACKFILL_ID_TAG: backfill}, statuses=list(NOT_FINISHED_STATUSES))
    for run in instance.get_run_ids(of_backfill):
        instance.add_run_tags(run, {CANCELLED_TAG: person})

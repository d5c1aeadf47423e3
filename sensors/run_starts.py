"""Run starts: gives up the runs whose process or pod ended before they had started, so that they are asked for again.

Should be: a run that is starting has a worker, a process or a Job, that comes up.
Is: Dagster's runs in that state, and what the run launcher says of their workers.
Follows: a run whose worker has ended is failed, and whoever wants it requests another. Dagster's own monitoring asks
for the worker of a run only once that has started, and lets one that is starting wait for `start_timeout_seconds`. A
launcher that cannot be asked, or does not know, is no verdict.
"""

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

from slipway.assets.subjects import Subject
from slipway.sensors.support.tick import Tick

NAME = "run_starts"
ENDED = (WorkerStatus.FAILED, WorkerStatus.SUCCESS, WorkerStatus.NOT_FOUND)
"""In each of them nobody is left to start the run."""


@dg.sensor(
    name=NAME,
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Gives up the runs whose process or pod ended before they had started.",
)
def run_starts(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    tick = Tick(context, NAME)
    if not tick.instance.run_launcher.supports_check_run_worker_health:
        return dg.SkipReason("the run launcher does not say whether a run's worker is there")
    starting = tick.instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.STARTING]))
    tick.for_each(starting, lambda run: Subject(f"run {run.run_id}"), lambda run: _look(tick, run))
    return tick.result()


def _look(tick: Tick, run: dg.DagsterRun) -> None:
    """Fail a run that is starting no more."""
    health = _health(tick, run)
    if health is None or health.status not in ENDED:
        return
    now = tick.instance.get_run_by_id(run.run_id)
    if now is None or now.status is not DagsterRunStatus.STARTING:  # it has started or ended meanwhile
        return
    why = f"Its worker ended before the run had started: {health.msg or health.status.value}"
    tick.instance.report_run_failed(now, why)
    tick.log.info(f"run {run.run_id}: {why}")


def _health(tick: Tick, run: dg.DagsterRun) -> CheckRunHealthResult | None:
    """What the launcher says of a run's worker; None where it cannot say."""
    try:
        return tick.instance.run_launcher.check_run_worker_health(run)
    except DagsterUserCodeUnreachableError as error:
        tick.postpone(str(error))
        return None

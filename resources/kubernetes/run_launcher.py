"""Run launcher: Dagster's runs as Jobs, where a cluster that cannot be asked is no verdict on a run.

Dagster's own launcher answers "unknown" while the API server is away, which run monitoring takes for the death of every
run, and a launch that fails takes its run out of the queue for good. This one raises `ClusterAway` in both cases.
Monitoring notes that and looks again; the queue keeps the run, with `max_user_code_failure_retries` in dagster.yaml. A
run fails only by an end of its Job that was read, or by a Job that was missed twice, some time apart.
"""

import time
from typing import Any

from dagster import DagsterRun
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import LaunchRunContext
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster_k8s import K8sRunLauncher
from dagster_k8s.client import DagsterK8sError
from dagster_k8s.job import get_job_name_from_run_id
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from slipway.trainer.base import parsing

REQUEST_SECONDS = 10.0
"""What one answer may take: a server that accepts and never answers is away."""
AWAY_SECONDS = 5.0
"""How long a server that gave no answer is not asked about the next run."""
MISSING_SECONDS = 40.0
"""A Job must be missed twice, this far apart, before it counts as deleted."""


_missed_since: dict[str, float] = {}
"""By run, since when its Job is missed; of the process, as each tick of a sensor has a launcher of its own."""


class ClusterAway(DagsterUserCodeUnreachableError):
    """The cluster could not be asked; nothing follows from that for a run.

    It is this kind of error because that is the one for which Dagster puts a run back into the queue.
    """


class PatientRunLauncher(K8sRunLauncher):
    """Dagster's launcher, for which unknown is not dead."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._away_until = 0.0

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launch a run, or adopt its Job when an earlier launch made it and did not hear so. Raises ClusterAway."""
        run = context.dagster_run
        name = job_name(context.dagster_run)
        job_status = self._job_status(run)
        if job_status is None:
            try:
                super().launch_run(context)
            except (DagsterK8sError, HTTPError, OSError) as error:
                raise ClusterAway(f"run {run.run_id}: the cluster did not take its Job: {error}") from error
        elif job_status.active or not (job_status.succeeded or job_status.failed):
            self._instance.report_engine_event(f"Job {name} was made by an earlier launch", run, cls=type(self))
        else:
            self._api_client.delete_job(job_name=name, namespace=self._namespace(run))
            raise ClusterAway(f"run {run.run_id}: its Job ended while the run was in the queue, and is made again")

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """How the run's Job is, as it was read. Raises ClusterAway, upon which monitoring fails no run."""
        if self._job_status(run) is None:
            since = _missed_since.setdefault(run.run_id, time.monotonic())
            if time.monotonic() - since < MISSING_SECONDS:
                raise ClusterAway(f"run {run.run_id}: its Job is not there, and is looked for again")
            del _missed_since[run.run_id]
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its Job was deleted")
        _missed_since.pop(run.run_id, None)
        result: CheckRunHealthResult = super().check_run_worker_health(run)
        if result.status is WorkerStatus.UNKNOWN:  # the cluster went away between the two requests
            raise ClusterAway(f"run {run.run_id}: {result.msg}")
        return result

    def _job_status(self, run: DagsterRun) -> Any:
        """The status of the run's Job, None when there is none. Raises ClusterAway."""
        if time.monotonic() < self._away_until:
            raise ClusterAway(f"run {run.run_id}: the API server gave no answer a moment ago")
        name = job_name(run)
        try:
            api = self._api_client.batch_api
            return api.read_namespaced_job_status(
                name, namespace=self._namespace(run), _request_timeout=REQUEST_SECONDS
            ).status
        except ApiException as error:
            if error.status == 404 and _is_about_the_job(error, name):
                return None
            raise ClusterAway(f"run {run.run_id}: the API server answered {error.status} {error.reason}") from error
        except (HTTPError, OSError) as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise ClusterAway(f"run {run.run_id}: the API server gave no answer: {error}") from error

    def _namespace(self, run: DagsterRun) -> str:
        return str(self.get_container_context_for_run(run).namespace)


def job_name(run: DagsterRun) -> str:
    """The name of the run's Job. Runs are not resumed (max_resume_run_attempts: 0), so there is one."""
    return str(get_job_name_from_run_id(run.run_id))  # type: ignore[no-untyped-call]


def _is_about_the_job(error: ApiException, name: str) -> bool:
    """Whether "not found" is the API server's word on this Job, and not a proxy's on the path."""
    try:
        answer = parsing.value(error.body or "")
        return bool(answer["reason"] == "NotFound" and answer["details"]["name"] == name)
    except (ValueError, KeyError, TypeError):
        return False

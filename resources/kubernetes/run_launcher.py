"""Run launcher: Dagster's runs as Jobs, without failing a run because the cluster does not answer.

While the API server is away, Dagster's own launcher reports "unknown", which run monitoring treats as the death of
every run; and a failed launch removes its run from the queue for good. This launcher raises `ClusterAway` in both
cases. Monitoring records that and tries again; the queue keeps the run (`max_user_code_failure_retries` in
dagster.yaml). A run fails only if its Job has ended, or if its Job was missing twice, some time apart.
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
"""The time-out of one request."""
AWAY_SECONDS = 5.0
"""The pause after a request without an answer, before the server is asked about another run."""
MISSING_SECONDS = 40.0
"""A Job must be missing twice, this far apart, before it counts as deleted."""


_missed_since: dict[str, float] = {}
"""When the Job of each run was first missing. It belongs to the process, since each sensor tick has a new launcher."""


class ClusterAway(DagsterUserCodeUnreachableError):
    """The cluster did not answer, which says nothing about a run.

    It derives from the one error after which Dagster puts a run back into the queue.
    """


class PatientRunLauncher(K8sRunLauncher):
    """Dagster's launcher, which never treats an unknown run as dead."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._away_until = 0.0

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launch a run, or adopt the Job of an earlier launch that got no answer. Raises ClusterAway."""
        run = context.dagster_run
        name = job_name(context.dagster_run)
        job_status = self._job_status(run)
        if job_status is None:
            try:
                super().launch_run(context)
            except (DagsterK8sError, HTTPError, OSError) as error:
                raise ClusterAway(f"run {run.run_id}: the cluster did not accept its Job: {error}") from error
        elif job_status.active or not (job_status.succeeded or job_status.failed):
            self._instance.report_engine_event(f"An earlier launch created Job {name}", run, cls=type(self))
        else:
            self._api_client.delete_job(job_name=name, namespace=self._namespace(run))
            raise ClusterAway(f"run {run.run_id}: its Job ended while the run was in the queue, and is created again")

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """The health of the run's Job. Raises ClusterAway, after which monitoring does not fail the run."""
        if self._job_status(run) is None:
            since = _missed_since.setdefault(run.run_id, time.monotonic())
            if time.monotonic() - since < MISSING_SECONDS:
                raise ClusterAway(f"run {run.run_id}: its Job is missing, and is checked again")
            del _missed_since[run.run_id]
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its Job was deleted")
        _missed_since.pop(run.run_id, None)
        result: CheckRunHealthResult = super().check_run_worker_health(run)
        if result.status is WorkerStatus.UNKNOWN:  # the cluster went away between the two requests
            raise ClusterAway(f"run {run.run_id}: {result.msg}")
        return result

    def _job_status(self, run: DagsterRun) -> Any:
        """The status of the run's Job, or None. Raises ClusterAway."""
        if time.monotonic() < self._away_until:
            raise ClusterAway(f"run {run.run_id}: the API server did not answer a moment ago")
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
            raise ClusterAway(f"run {run.run_id}: the API server did not answer: {error}") from error

    def _namespace(self, run: DagsterRun) -> str:
        return str(self.get_container_context_for_run(run).namespace)


def job_name(run: DagsterRun) -> str:
    """The name of the run's Job. Runs are never resumed (max_resume_run_attempts: 0), so each has only one."""
    return str(get_job_name_from_run_id(run.run_id))  # type: ignore[no-untyped-call]


def _is_about_the_job(error: ApiException, name: str) -> bool:
    """Whether the API server itself says that this Job does not exist, and not a proxy that does not know the path."""
    try:
        answer = parsing.value(error.body or "")
        return bool(answer["reason"] == "NotFound" and answer["details"]["name"] == name)
    except (ValueError, KeyError, TypeError):
        return False

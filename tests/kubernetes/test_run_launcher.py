"""The run launcher: while the cluster cannot be asked, no run fails, and none leaves the queue.

Dagster's own run monitoring and its own queue work on a real instance; the API server is the simulated one.
"""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.definitions.reconstruct import reconstructable
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from slipway.resources.kubernetes import run_launcher
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import JOBS, KubernetesObject
from slipway.sensors.run_starts import run_starts
from tests.kubernetes.simulated.cluster import Cluster as Simulated

NOBODY = {"slipway/fleet": "no-such-node"}
"""A selector of nodes: the pods of runs stay pending, and nothing is executed."""


ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("slipway"), "all"), "some_job")


@dg.op
def nothing() -> None:
    pass


@dg.job
def some_job() -> None:
    nothing()


class ClusterDagster:
    """An instance of Dagster on the simulated cluster, with the settings of the chart that matter here."""

    def __init__(self, instance: dg.DagsterInstance, client: Client) -> None:
        self.instance, self.client = instance, client

    def run(self, status: DagsterRunStatus) -> str:
        origin = reconstructable(some_job).get_python_origin()
        run = self.instance.create_run_for_job(
            some_job, status=DagsterRunStatus.QUEUED, job_code_origin=origin, remote_job_origin=ORIGIN
        )
        self.instance.report_dagster_event(dg.DagsterEvent.job_enqueue(run), run_id=run.run_id)
        if status is DagsterRunStatus.STARTED:
            self.dequeue()
            started = dg.DagsterEvent(event_type_value="PIPELINE_START", job_name=run.job_name)
            self.instance.report_dagster_event(started, run_id=run.run_id)
        return run.run_id

    def dequeue(self) -> None:
        with create_test_daemon_workspace_context(EmptyWorkspaceTarget(), self.instance) as context:
            list(QueuedRunCoordinatorDaemon(interval_seconds=1).run_iteration(context))

    def monitor(self) -> list[str]:
        """One round of Dagster's run monitoring; the errors that it noted."""
        with create_test_daemon_workspace_context(EmptyWorkspaceTarget(), self.instance) as context:
            errors = list(execute_run_monitoring_iteration(context, logging.getLogger("monitoring")))
        return [error.message for error in errors if error]

    def status(self, run: str) -> DagsterRunStatus:
        dagster_run = self.instance.get_run_by_id(run)
        assert dagster_run is not None
        return dagster_run.status

    def job(self, run: str) -> str:
        dagster_run = self.instance.get_run_by_id(run)
        assert dagster_run is not None
        return run_launcher.job_name(dagster_run)

    def jobs(self) -> set[str]:
        return {job["metadata"]["name"] for job in self.client.list(JOBS, {})}


@pytest.fixture
def cluster_dagster(
    simulated: Simulated, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterDagster]:
    monkeypatch.setattr(run_launcher, "AWAY_SECONDS", 0.0)
    launcher: dict[str, Any] = {
        "module": "slipway.resources.kubernetes.run_launcher",
        "class": "PatientRunLauncher",
        "config": {
            "load_incluster_config": False,
            "kubeconfig_file": str(simulated.kubeconfig),
            "job_namespace": namespace,
            "service_account_name": "slipway-trainer",
            "instance_config_map": "instance",
            "dagster_home": "/etc/dagster",
            "job_image": "registry.example/platform:1",
            "run_k8s_config": {"pod_spec_config": {"node_selector": NOBODY}},
        },
    }
    queue = {"max_user_code_failure_retries": 10000, "user_code_failure_retry_delay": 0}
    settings = {
        "run_launcher": launcher,
        "run_coordinator": {
            "module": "dagster._core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": queue,
        },
        "run_monitoring": {"enabled": True, "start_timeout_seconds": 1800},
    }
    with dg.instance_for_test(settings, temp_dir=str(tmp_path)) as instance:
        yield ClusterDagster(instance, Client(str(simulated.kubeconfig), namespace=namespace))


@pytest.fixture
def away(simulated: Simulated) -> Iterator[Simulated]:
    """The cluster; its API server is there again afterwards."""
    yield simulated
    simulated.allow()


def test_runs_whose_cluster_is_away_go_on(cluster_dagster: ClusterDagster, away: Simulated):
    runs = [cluster_dagster.run(DagsterRunStatus.STARTED) for _ in range(2)]
    assert cluster_dagster.monitor() == []
    away.stop_api()
    try:
        for _ in range(3):
            noted = cluster_dagster.monitor()
            assert len(noted) == 2 and all("ClusterAway" in message for message in noted)
    finally:
        away.start_api()
    assert cluster_dagster.monitor() == []
    assert {cluster_dagster.status(run) for run in runs} == {DagsterRunStatus.STARTED}


def test_a_refusal_of_the_api_server_is_no_verdict_either(cluster_dagster: ClusterDagster, away: Simulated):
    run = cluster_dagster.run(DagsterRunStatus.STARTED)
    away.forbid("get", "jobs/status")
    assert "answered 403" in cluster_dagster.monitor()[0]
    assert cluster_dagster.status(run) is DagsterRunStatus.STARTED


def test_an_api_server_that_accepts_and_never_answers_is_away(
    cluster_dagster: ClusterDagster, monkeypatch: pytest.MonkeyPatch
):
    run = cluster_dagster.run(DagsterRunStatus.STARTED)
    monkeypatch.setattr(run_launcher, "REQUEST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        launcher = cluster_dagster.instance.run_launcher
        assert isinstance(launcher, run_launcher.PatientRunLauncher)
        configuration = launcher._api_client.batch_api.api_client.configuration
        configuration.refresh_api_key_hook = None  # it would read the address from the kubeconfig again
        configuration.host = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "did not answer" in cluster_dagster.monitor()[0]
    assert cluster_dagster.status(run) is DagsterRunStatus.STARTED


def test_a_job_that_is_gone_fails_its_run_when_it_was_missed_twice(
    cluster_dagster: ClusterDagster, monkeypatch: pytest.MonkeyPatch
):
    run = cluster_dagster.run(DagsterRunStatus.STARTED)
    cluster_dagster.client.delete(JOBS, cluster_dagster.job(run))
    assert "is checked again" in cluster_dagster.monitor()[0]
    assert cluster_dagster.status(run) is DagsterRunStatus.STARTED
    monkeypatch.setattr(run_launcher, "MISSING_SECONDS", 0.0)
    assert cluster_dagster.monitor() == []
    assert cluster_dagster.status(run) is DagsterRunStatus.FAILURE


def test_a_queued_run_waits_for_its_cluster(cluster_dagster: ClusterDagster, away: Simulated):
    away.stop_api()
    try:
        run = cluster_dagster.run(DagsterRunStatus.QUEUED)
        for _ in range(3):
            cluster_dagster.dequeue()
            assert cluster_dagster.status(run) is DagsterRunStatus.QUEUED
    finally:
        away.start_api()
    cluster_dagster.dequeue()
    assert (cluster_dagster.status(run), cluster_dagster.jobs()) == (
        DagsterRunStatus.STARTING,
        {cluster_dagster.job(run)},
    )


def test_a_run_whose_job_was_made_without_its_launcher_hearing_of_it_has_one_job(cluster_dagster: ClusterDagster):
    run = cluster_dagster.run(DagsterRunStatus.QUEUED)
    cluster_dagster.dequeue()
    dagster_run = cluster_dagster.instance.get_run_by_id(run)
    assert dagster_run is not None
    cluster_dagster.instance.report_dagster_event(
        dg.DagsterEvent.job_enqueue(dagster_run), run_id=run
    )  # as after a lost answer
    cluster_dagster.dequeue()
    assert (cluster_dagster.status(run), len(cluster_dagster.jobs())) == (DagsterRunStatus.STARTING, 1)


def tick(cluster_dagster: ClusterDagster) -> str:
    """One tick of the sensor; why it did nothing."""
    with dg.build_sensor_context(instance=cluster_dagster.instance) as context:
        result = run_starts(context)
    assert isinstance(result, dg.SensorResult)
    return str(result.skip_reason.skip_message) if result.skip_reason else ""


def starting(cluster_dagster: ClusterDagster) -> str:
    """A run whose Job was made and whose pod is still to come."""
    run = cluster_dagster.run(DagsterRunStatus.QUEUED)
    cluster_dagster.dequeue()
    assert cluster_dagster.status(run) is DagsterRunStatus.STARTING
    return run


def _failed(job: KubernetesObject) -> None:
    job["status"] = {
        "failed": 1,
        "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}],
    }


def test_a_run_that_was_starting_is_given_up_when_its_job_has_failed(
    cluster_dagster: ClusterDagster, simulated: Simulated, namespace: str
):
    run, other = starting(cluster_dagster), starting(cluster_dagster)
    simulated.change(JOBS, namespace, cluster_dagster.job(run), _failed)
    assert cluster_dagster.monitor() == [] and cluster_dagster.status(run) is DagsterRunStatus.STARTING, (
        "Dagster's monitoring waits"
    )
    assert tick(cluster_dagster) == ""
    assert (cluster_dagster.status(run), cluster_dagster.status(other)) == (
        DagsterRunStatus.FAILURE,
        DagsterRunStatus.STARTING,
    )


def test_a_run_that_was_starting_is_given_up_when_its_job_was_missed_twice(
    cluster_dagster: ClusterDagster, monkeypatch: pytest.MonkeyPatch
):
    run = starting(cluster_dagster)
    cluster_dagster.client.delete(JOBS, cluster_dagster.job(run))
    assert "is checked again" in tick(cluster_dagster) and cluster_dagster.status(run) is DagsterRunStatus.STARTING
    monkeypatch.setattr(run_launcher, "MISSING_SECONDS", 0.0)
    tick(cluster_dagster)
    assert cluster_dagster.status(run) is DagsterRunStatus.FAILURE


def test_a_run_that_is_starting_goes_on_while_its_cluster_cannot_be_asked(
    cluster_dagster: ClusterDagster, away: Simulated
):
    run = starting(cluster_dagster)
    away.forbid("get", "jobs/status")
    assert "answered 403" in tick(cluster_dagster)
    away.stop_api()
    try:
        assert tick(cluster_dagster)
    finally:
        away.start_api()
    assert cluster_dagster.status(run) is DagsterRunStatus.STARTING

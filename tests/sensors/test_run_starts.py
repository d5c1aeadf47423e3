"""Run starts: a run of this machine whose process is gone before it had started is given up; others are left alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.events import EngineEventData

from slipway.sensors.run_starts import run_starts
from slipway.sensors.support import runs
from slipway.sensors.support.runs import NewestRuns

TAG = "slipway/a-test"


@dg.op
def nothing() -> None:
    pass


@dg.job
def some_job() -> None:
    nothing()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    launcher = {"module": "slipway.resources.run_launcher", "class": "LocalRunLauncher"}
    with dg.instance_for_test({"run_launcher": launcher}, temp_dir=str(tmp_path)) as instance:
        yield instance


def run_in(instance: dg.DagsterInstance, pid: int | None) -> str:
    """A run that is starting in this process, if it is on record."""
    run = instance.create_run_for_job(some_job, status=DagsterRunStatus.NOT_STARTED, tags={TAG: "this"})
    starting = dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name=run.job_name)
    instance.report_dagster_event(starting, run_id=run.run_id)
    if pid is not None:
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))
    return run.run_id


def tick(instance: dg.DagsterInstance) -> set[str]:
    """One tick; the runs that have failed."""
    with dg.build_sensor_context(instance=instance) as context:
        run_starts(context)
    return set(instance.get_run_ids(RunsFilter(statuses=[DagsterRunStatus.FAILURE])))


def test_only_the_run_whose_process_is_gone_is_given_up(instance: dg.DagsterInstance):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    gone, alive, comes_up = run_in(instance, ended.pid), run_in(instance, os.getpid()), run_in(instance, None)
    assert tick(instance) == {gone}
    assert {instance.get_run_by_id(run_id).status for run_id in (alive, comes_up)} == {DagsterRunStatus.STARTING}  # type: ignore[union-attr]


def test_a_run_that_was_given_up_is_requested_again_within_a_minute(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    run = run_in(instance, ended.pid)
    assert not NewestRuns(instance, TAG, ["this"]).may_request("this")
    assert tick(instance) == {run}
    assert run_starts.minimum_interval_seconds is not None
    assert run_starts.minimum_interval_seconds + runs.BACKOFF_SECONDS < 60
    monkeypatch.setattr(runs, "BACKOFF_SECONDS", 0.0)
    assert NewestRuns(instance, TAG, ["this"]).may_request("this")


def test_a_process_that_died_and_that_its_parent_has_not_heard_of_is_gone(instance: dg.DagsterInstance):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as worker:
        run = run_in(instance, worker.pid)
        assert tick(instance) == set()
        worker.kill()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert tick(instance) == {run}


def test_where_the_launcher_does_not_know_of_workers_nothing_is_given_up(tmp_path: Path):
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        run_in(instance, 999_999_999)
        assert tick(instance) == set()

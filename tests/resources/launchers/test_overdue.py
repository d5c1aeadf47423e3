"""Overdue: a job whose keeper died too early, or does not answer, has an end all the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers.local import overdue
from slipway.resources.launchers.local.folder import LOCK, JobFolder, LocalOrder
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.base import processes
from tests.conftest import Marked, until
from tests.resources.launchers.contract import ended, job
from tests.resources.launchers.rank_records import RankRecords

CODE = Path(__file__).resolve().parents[3]
DIES = "import os, sys; from pathlib import Path; from slipway.resources.launchers.local.folder import JobFolder\n"
DIES += "assert JobFolder(Path(sys.argv[-1])).lock() is not None; os.kill(os.getpid(), 9)"


@pytest.fixture
def launcher(tmp_path: Path) -> LocalLauncher:
    fleet = EmbeddedFleet(tmp_path / "nodes", ("node-0", "node-1"), reboot_seconds=60)
    return LocalLauncher(tmp_path / "jobs", CODE, fleet)


@pytest.fixture
def unkept(launcher: LocalLauncher) -> JobFolder:
    """A job that was accepted, and has no keeper yet."""
    folder = JobFolder.named("job-1", launcher.folder)
    folder.accept(LocalOrder(job("runs", "node-0"), launcher.fleet.folder.resolve(), 1), ("node-0",))
    return folder


def age(folder: JobFolder) -> None:
    """Let the keeper have taken the lock long ago."""
    before = time.time() - overdue.FIRST_FILE_SECONDS - 1
    os.utime(folder.path / LOCK, (before, before))


def test_a_keeper_that_was_killed_before_its_first_file_fails_the_job(launcher: LocalLauncher, unkept: JobFolder):
    assert subprocess.call([sys.executable, "-c", DIES, str(unkept.path)], cwd=CODE) == -signal.SIGKILL
    assert launcher.poll("job-1").state is JobState.PENDING, "its keeper may be about to write"
    age(unkept)
    status = launcher.poll("job-1")
    assert (status.state, status.reason) == (JobState.FAILED, "its keeper died before it started the nodes")
    launcher.submit(job("runs", "node-0"))
    assert launcher.poll("job-1") == status, "a job that has ended never runs again"


def test_a_job_that_no_keeper_ever_had_waits_for_the_next_submit(
    launcher: LocalLauncher, unkept: JobFolder, rank_records: RankRecords, marked: Marked
):
    assert launcher.poll("job-1").state is JobState.PENDING
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    launcher.cancel("job-1", grace_seconds=0.2)
    assert ended(launcher).state is JobState.STOPPED


def test_a_keeper_that_hangs_before_its_first_file_is_killed(
    launcher: LocalLauncher, unkept: JobFolder, marked: Marked, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(overdue, "HUNG_SECONDS", 0.0)
    hangs = DIES.replace("os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 19)")
    with subprocess.Popen([sys.executable, "-c", hangs, "-m", overdue.KEEPER, str(unkept.path)], cwd=CODE) as keeper:
        until(lambda: keeper.pid in marked.frozen(), "the keeper to hang")
        age(unkept)
        status = launcher.poll("job-1")
    assert (status.state, keeper.returncode) == (JobState.FAILED, -signal.SIGKILL)


def test_a_keeper_that_hangs_does_not_keep_its_job_from_being_stopped(
    launcher: LocalLauncher, rank_records: RankRecords, marked: Marked, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(overdue, "HUNG_SECONDS", 0.3)
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    [keeper] = marked.running(overdue.KEEPER)
    os.kill(keeper, signal.SIGSTOP)
    launcher.cancel("job-1", grace_seconds=0.2)
    status = ended(launcher)
    assert (status.state, status.reason) == (
        JobState.STOPPED,
        "cancelled; its keeper did not respond, and was killed",
    )
    marked.until_gone()


def test_of_a_job_whose_keeper_died_a_node_that_stands_still_is_killed(
    launcher: LocalLauncher, rank_records: RankRecords, marked: Marked
):
    """Its process hears of no signal but SIGKILL, and it held the job, so that no other could follow."""
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    [keeper] = marked.running(overdue.KEEPER)
    for pid in processes.descendants(keeper):
        os.kill(pid, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    status = ended(launcher)
    assert (status.state, status.reason) == (JobState.FAILED, "its keeper died")
    marked.until_gone()


@pytest.mark.slow
def test_a_keeper_that_hangs_before_it_has_forked_does_not_hold_up_who_submits(
    launcher: LocalLauncher, marked: Marked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    from slipway.resources.errors import Unavailable
    from slipway.resources.launchers.local import local_process

    monkeypatch.setattr(local_process, "START_SECONDS", 1.0)
    (tmp_path / "stops").mkdir()
    (tmp_path / "stops" / "sitecustomize.py").write_text("import os; os.kill(os.getpid(), 19)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stops"))
    with pytest.raises(Unavailable, match="job job-1: its keeper hung for 1 s"):
        launcher.submit(job("runs", "node-0"))
    marked.until_gone()

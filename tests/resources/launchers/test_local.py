"""The local launcher passes the contract, and its nodes die like those of a real fleet: whole, and on record."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.fleet import embedded
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers.local.folder import JobFolder, LocalOrder
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.base import processes
from tests.conftest import Marked
from tests.resources.launchers.contract import LauncherContract, Nodes, ended, job
from tests.resources.launchers.rank_records import RankRecords

CODE = Path(__file__).resolve().parents[3]


@pytest.fixture
def launcher(tmp_path: Path) -> LocalLauncher:
    fleet = EmbeddedFleet(tmp_path / "nodes", ("node-0", "node-1"), reboot_seconds=60)
    return LocalLauncher(tmp_path / "jobs", CODE, fleet)


@pytest.fixture
def nodes() -> Nodes:
    return ("node-0", "node-1")


@pytest.fixture
def survivors(marked: Marked) -> Marked:
    return marked


class TestContract(LauncherContract):
    """The contract, for the local launcher."""


def test_a_node_that_was_killed_when_its_grace_was_over_is_named(launcher: LocalLauncher, rank_records: RankRecords):
    launcher.submit(job("clings", "node-0"))
    rank_records.until("clinging")
    launcher.cancel("job-1", grace_seconds=0.5)
    assert ended(launcher).reason == "cancelled; node-0 was killed at the end of its grace period"


def keeper_of(marked: Marked) -> int:
    """The pid of the one keeper."""
    [pid] = [
        pid
        for pid in marked.pids()
        if b"slipway.resources.launchers.local.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


def test_all_descendants_die_with_a_killed_node(launcher: LocalLauncher, rank_records: RankRecords, marked: Marked):
    launcher.submit(job("clings", "node-0"))
    rank_records.until("clinging")
    [node] = embedded.kill(launcher.fleet.folder, "node-0")
    assert node not in {start["pid"] for start in rank_records.starts()}
    status = ended(launcher)
    assert (status.state, status.reason) == (JobState.FAILED, "node-0 was lost: SIGKILL")
    assert status.lost_nodes == ("node-0",)
    marked.until_gone()


def test_a_node_that_died_under_a_job_is_away_for_a_while(launcher: LocalLauncher, rank_records: RankRecords):
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    node = processes.parent_of(rank_records.starts()[0]["pid"])
    assert node is not None
    os.kill(node, signal.SIGKILL)
    ended_at = ended(launcher).ended_at
    assert ended_at is not None
    lost, other = launcher.fleet.nodes()
    assert (lost.name, lost.ready, lost.reason) == ("node-0", False, "died under job job-1")
    assert other.ready
    assert all(node.ready for node in launcher.fleet.nodes(now=ended_at + 60))


@pytest.mark.nightly
def test_a_node_that_stands_still_for_long_dies_with_all_its_processes(
    launcher: LocalLauncher, rank_records: RankRecords, marked: Marked
):
    launcher.submit(job("clings", "node-0"))
    rank_records.until("clinging")
    node = processes.parent_of(rank_records.starts()[0]["pid"])
    assert node is not None
    os.kill(node, signal.SIGSTOP)
    status = ended(launcher)
    assert (status.state, status.lost_nodes) == (JobState.FAILED, ("node-0",))
    marked.until_gone()


@pytest.mark.slow
def test_the_other_nodes_end_with_a_killed_node(launcher: LocalLauncher, rank_records: RankRecords, marked: Marked):
    launcher.submit(job("clings", "node-0", "node-1"))
    rank_records.until("clinging", count=2)
    embedded.kill(launcher.fleet.folder, "node-1")
    status = ended(launcher)
    assert status.state is JobState.FAILED and status.lost_nodes == ("node-1",)
    marked.until_gone()


@pytest.mark.parametrize("program", ["runs", "clings"])
def test_a_killed_keeper_fails_the_job_and_all_its_processes_die(
    launcher: LocalLauncher, rank_records: RankRecords, marked: Marked, program: str
):
    launcher.submit(job(program, "node-0"))
    rank_records.until("clinging" if program == "clings" else "pid")
    os.kill(keeper_of(marked), signal.SIGKILL)
    status = ended(launcher)
    assert (status.state, status.reason, status.lost_nodes) == (JobState.FAILED, "its keeper died", ())
    assert launcher.poll("job-1") == status
    launcher.submit(job(program, "node-0"))
    assert len(rank_records.starts()) == 1
    marked.until_gone()


@pytest.mark.slow
def test_agents_and_ranks_of_all_nodes_die_with_a_killed_keeper(
    launcher: LocalLauncher, rank_records: RankRecords, marked: Marked
):
    launcher.submit(job("clings", "node-0", "node-1"))
    rank_records.until("clinging", count=2)
    os.kill(keeper_of(marked), signal.SIGKILL)
    assert ended(launcher).state is JobState.FAILED
    marked.until_gone()


def test_a_second_keeper_exits_at_once_without_output(launcher: LocalLauncher, rank_records: RankRecords):
    second = [sys.executable, "-m", "slipway.resources.launchers.local.keeper", str(launcher.folder / "job-1")]
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    assert subprocess.run(second, capture_output=True, text=True, check=True).stderr == ""
    launcher.cancel("job-1", grace_seconds=30)
    assert ended(launcher).state is JobState.STOPPED
    assert subprocess.run(second, capture_output=True, text=True, check=True).stderr == ""
    assert len(rank_records.starts()) == 1


def test_a_killed_rank_fails_the_job_with_the_signal(launcher: LocalLauncher, rank_records: RankRecords):
    launcher.submit(job("runs", "node-0"))
    os.kill(rank_records.until("pid")[0]["pid"], signal.SIGKILL)
    status = ended(launcher)
    assert (status.state, status.reason) == (JobState.FAILED, "node-0 ended with exit code 137 (SIGKILL)")
    assert status.lost_nodes == ()


def accepted_only(launcher: LocalLauncher) -> JobFolder:
    """A job whose submitter died between making the job object and starting the keeper."""
    folder = JobFolder.named("job-1", launcher.folder)
    folder.accept(LocalOrder(job("exits", "node-0"), launcher.fleet.folder, 1), ("node-0",))
    return folder


def test_a_half_submitted_job_is_pending_until_it_is_submitted_again(launcher: LocalLauncher):
    accepted_only(launcher)
    assert launcher.poll("job-1").state is JobState.PENDING
    assert launcher.logs("job-1") == {"node-0": ""}
    launcher.submit(job("exits", "node-0"))
    assert ended(launcher).state is JobState.SUCCEEDED


def test_a_pending_job_that_is_cancelled_never_runs(launcher: LocalLauncher, rank_records: RankRecords):
    accepted_only(launcher)
    launcher.cancel("job-1", grace_seconds=30)
    assert launcher.poll("job-1").state is JobState.STOPPED
    launcher.submit(job("exits", "node-0"))
    assert launcher.poll("job-1").state is JobState.STOPPED
    assert rank_records.starts() == []


def test_a_job_whose_folder_is_deleted_ends(launcher: LocalLauncher, rank_records: RankRecords, marked: Marked):
    launcher.submit(job("clings", "node-0"))
    rank_records.until("clinging")
    (launcher.folder / "job-1").rename(launcher.folder / "away")
    assert launcher.poll("job-1").state is JobState.MISSING
    marked.until_gone()
    assert not (launcher.folder / "job-1").exists()


def test_a_job_that_cannot_be_read_is_not_taken_for_a_dead_one(launcher: LocalLauncher):
    launcher.folder.mkdir()
    (launcher.folder / "job-1").write_text("a file where a folder should be")
    with pytest.raises(Unavailable, match="job-1"):
        launcher.poll("job-1")
    with pytest.raises(Unavailable, match="job-1"):
        launcher.submit(job("exits", "node-0"))


def test_a_config_that_is_not_json_is_refused(launcher: LocalLauncher):
    with pytest.raises(ValueError, match=r"job-1.*config"):
        launcher.submit(job("exits", "node-0", where=Path("/")))
    assert launcher.poll("job-1").state is JobState.MISSING


def test_the_submitter_has_no_child_afterwards(launcher: LocalLauncher, rank_records: RankRecords):
    before = processes.children(os.getpid())
    launcher.submit(job("runs", "node-0"))
    assert processes.children(os.getpid()) == before
    rank_records.until("pid")
    launcher.cancel("job-1", grace_seconds=30)
    ended(launcher)


@pytest.fixture
def deaf() -> Iterator[None]:
    """This process ignores and blocks signals like a daemon under nohup or a busy thread; children inherit that."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGTERM)}
    signal.pthread_sigmask(signal.SIG_BLOCK, before)
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("deaf")
def test_ranks_receive_signals_that_their_submitter_ignores(launcher: LocalLauncher, rank_records: RankRecords):
    launcher.submit(job("sleeps", "node-0"))
    rank_records.until("pid")
    launcher.cancel("job-1", grace_seconds=30)
    status = ended(launcher)
    assert (status.state, status.reason) == (JobState.STOPPED, "cancelled")


@pytest.mark.usefixtures("deaf")
def test_ranks_die_with_a_killed_keeper_although_its_submitter_ignores_signals(
    launcher: LocalLauncher, rank_records: RankRecords, marked: Marked
):
    launcher.submit(job("clings", "node-0"))
    rank_records.until("clinging")
    os.kill(keeper_of(marked), signal.SIGKILL)
    marked.until_gone()
    assert ended(launcher).state is JobState.FAILED


def test_the_submitter_learns_that_a_keeper_cannot_start(launcher: LocalLauncher, tmp_path: Path):
    (tmp_path / "slipway.py").touch()
    misplaced = dataclasses.replace(launcher, code=tmp_path)
    with pytest.raises(Unavailable, match=r"job-1.*keeper did not start.*keeper\.log"):
        misplaced.submit(job("exits", "node-0"))


def test_a_job_that_cannot_be_set_up_fails_with_the_reason(launcher: LocalLauncher):
    folder = accepted_only(launcher)
    (folder.path / "logs").write_text("a file where a folder should be")
    launcher.submit(job("exits", "node-0"))
    status = ended(launcher)
    assert status.state is JobState.FAILED and status.reason.startswith("its keeper failed: ")


@pytest.mark.slow
def test_a_job_whose_rendezvous_store_died_fails(launcher: LocalLauncher, rank_records: RankRecords, marked: Marked):
    launcher.submit(job("sleeps", "node-0", "node-1"))
    rank_records.until("pid", count=2)
    store = [pid for pid in marked.pids() if b"launchers.local.rendezvous" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(store[0], signal.SIGKILL)
    status = ended(launcher)
    assert status.state is JobState.FAILED and status.reason.startswith("its rendezvous store died")
    assert status.lost_nodes == ()

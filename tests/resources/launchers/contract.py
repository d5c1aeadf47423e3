"""The launcher contract: tests that every implementation must pass.

A test module of an implementation derives from `LauncherContract` and gives three fixtures: `launcher`, one that can be
pickled and has no jobs; `nodes`, the names of two nodes that it can run on; `survivors`, which waits until no process
of the jobs is left. The tests assume nothing else: no shared file, and no access to the processes.
"""

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from slipway.resources.launchers.protocol import Job, JobState, Launcher, Status
from tests.conftest import until
from tests.resources.launchers.rank_records import RankRecords

PROGRAM = Path(__file__).with_name("program.py").read_text()
TOOLS = "/usr/bin"
"""A folder that exists wherever programs run, with `env` in it."""
LINGER_SECONDS = 2
"""How long a rank stays after its last note: it must be read before a cancelled job is gone with its logs."""

Nodes = tuple[str, str]


class Survivors(Protocol):
    def until_gone(self) -> None:
        """Return once no process of any job is left."""


def job(does: str, *nodes: str, name: str = "job-1", **config: object) -> Job:
    """A job whose ranks do what the function of that name in `program.py` does."""
    return Job(name, ("python", "-c", PROGRAM), {"does": does, **config}, nodes)


def shell(script: str, *nodes: str, folder: str = "") -> Job:
    """A job that runs a shell script; $0 is the path of its config."""
    return Job("job-1", ("sh", "-c", script), {}, nodes, folder=folder)


def ended(launcher: Launcher, name: str = "job-1") -> Status:
    """The status of a job once it has ended."""

    def terminal() -> Status | None:
        status = launcher.poll(name)
        return status if status.state.terminal else None

    status = until(terminal, f"the end of {name}")
    assert status is not None
    return status


def submitter(launcher: Launcher, submitted: Job, folder: Path, gate: Path) -> "subprocess.Popen[str]":
    """Another process, ready to submit as soon as the file `gate` is there."""
    order = folder / "order.pickle"
    order.write_bytes(pickle.dumps((launcher, submitted)))
    command = [sys.executable, "-m", "tests.resources.launchers.submitter", str(order), str(gate)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def submitted(process: "subprocess.Popen[str]") -> None:
    """Wait until the process has submitted, then kill it."""
    assert process.stdout is not None
    assert process.stdout.readline() == "submitted\n"
    process.kill()
    process.wait()
    process.stdout.close()


class LauncherContract:
    def test_an_unknown_job_is_missing(self, launcher: Launcher):
        assert launcher.poll("nobody-submitted-this") == Status(JobState.MISSING)
        assert launcher.logs("nobody-submitted-this") == {}

    def test_cancelling_an_unknown_job_changes_nothing(self, launcher: Launcher):
        launcher.cancel("nobody-submitted-this", grace_seconds=0)
        assert launcher.poll("nobody-submitted-this").state is JobState.MISSING

    def test_a_job_whose_ranks_exit_with_0_succeeds(self, launcher: Launcher, nodes: Nodes):
        launcher.submit(job("exits", nodes[0]))
        status = ended(launcher)
        assert (status.state, status.reason, status.lost_nodes) == (JobState.SUCCEEDED, "", ())
        assert status.nodes == nodes[:1]
        assert status.submitted_at and status.started_at and status.ended_at
        assert status.submitted_at <= status.started_at <= status.ended_at

    def test_a_job_whose_rank_fails_says_where_and_with_which_exit_code(self, launcher: Launcher, nodes: Nodes):
        launcher.submit(job("exits", nodes[0], code=3))
        status = ended(launcher)
        assert status.state is JobState.FAILED
        assert nodes[0] in status.reason and "exit code 3" in status.reason
        assert status.lost_nodes == ()

    def test_submitting_twice_starts_one_job(self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords):
        for _ in range(2):
            launcher.submit(job("runs", nodes[0]))
        rank_records.until("pid")
        launcher.submit(job("runs", nodes[0]))
        launcher.cancel("job-1", grace_seconds=30)
        ended(launcher)
        assert len(rank_records.starts()) == 1

    def test_two_processes_that_submit_at_the_same_moment_start_one_job(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords, tmp_path: Path
    ):
        gate = tmp_path / "gate"
        rivals = [submitter(launcher, job("runs", nodes[0]), tmp_path, gate) for _ in range(2)]
        gate.touch()
        for rival in rivals:
            submitted(rival)
        rank_records.until("pid")
        launcher.cancel("job-1", grace_seconds=30)
        ended(launcher)
        assert len(rank_records.starts()) == 1

    def test_another_job_under_a_name_that_is_taken_is_refused(self, launcher: Launcher, nodes: Nodes):
        launcher.submit(job("exits", nodes[0], word="first"))
        with pytest.raises(ValueError, match=r"job-1.*already submitted with another config"):
            launcher.submit(job("exits", nodes[0], word="second"))
        assert ended(launcher).state is JobState.SUCCEEDED

    def test_a_submitter_with_more_labels_adopts_the_same_job(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords
    ):
        plain = dataclasses.replace(job("exits", *nodes), size=1)
        launcher.submit(dataclasses.replace(plain, prefer=nodes[:1]))
        later = dataclasses.replace(plain, environment={"INCARNATION": "7"}, prefer=nodes[1:])
        launcher.submit(dataclasses.replace(later, labels={"training": "t"}))
        assert ended(launcher).state is JobState.SUCCEEDED
        assert len(rank_records.starts()) == 1

    @pytest.mark.parametrize("name", ["", "a/b", "..", "a b"])
    def test_a_name_that_no_object_can_have_is_refused(self, launcher: Launcher, nodes: Nodes, name: str):
        with pytest.raises(ValueError, match="job name"):
            launcher.submit(job("exits", nodes[0], name=name))

    @pytest.mark.parametrize("chosen", [(), (0, 0), (2,)])
    def test_nodes_that_cannot_run_it_are_refused(self, launcher: Launcher, nodes: Nodes, chosen: tuple[int, ...]):
        names = [(*nodes, "nowhere")[index] for index in chosen]
        with pytest.raises(ValueError, match="node"):
            launcher.submit(job("exits", *names))
        assert launcher.poll("job-1").state is JobState.MISSING

    def test_a_job_that_has_ended_never_runs_again(self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords):
        launcher.submit(job("exits", nodes[0], code=1))
        before = ended(launcher)
        launcher.submit(job("exits", nodes[0], code=1))
        launcher.cancel("job-1", grace_seconds=0)
        assert launcher.poll("job-1") == before
        assert len(rank_records.starts()) == 1

    def test_a_cancelled_job_may_finish_within_its_grace(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords
    ):
        launcher.submit(job("runs", nodes[0], linger_seconds=LINGER_SECONDS))
        rank_records.until("pid")
        launcher.cancel("job-1", grace_seconds=30)
        assert rank_records.until("finished")
        status = ended(launcher)
        assert (status.state, status.reason) == (JobState.STOPPED, "cancelled")

    def test_processes_that_run_after_the_grace_are_killed(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords, survivors: Survivors
    ):
        launcher.submit(job("clings", nodes[0]))
        rank_records.until("clinging")
        launcher.cancel("job-1", grace_seconds=0.5)
        status = ended(launcher)
        assert status.state is JobState.STOPPED and status.reason.startswith("cancelled")
        assert status.lost_nodes == ()
        survivors.until_gone()

    def test_cancelling_again_does_not_prolong_the_grace(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords
    ):
        launcher.submit(job("clings", nodes[0]))
        rank_records.until("clinging")
        launcher.cancel("job-1", grace_seconds=0.5)
        launcher.cancel("job-1", grace_seconds=3600)
        assert ended(launcher).state is JobState.STOPPED

    def test_a_cancelled_job_stays_cancelled(self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords):
        launcher.submit(job("runs", nodes[0]))
        rank_records.until("pid")
        launcher.cancel("job-1", grace_seconds=30)
        ended(launcher)
        launcher.submit(job("runs", nodes[0]))
        assert launcher.poll("job-1").state is JobState.STOPPED
        assert len(rank_records.starts()) == 1

    def test_logs_are_the_end_of_the_output_by_node(self, launcher: Launcher, nodes: Nodes):
        launcher.submit(shell('echo "rank $RANK says farewell"', nodes[0]))
        ended(launcher)
        assert launcher.logs("job-1") == {nodes[0]: "rank 0 says farewell\n"}
        assert launcher.logs("job-1", tail_bytes=9) == {nodes[0]: "farewell\n"}

    def test_a_released_job_is_missing_with_its_logs(self, launcher: Launcher, nodes: Nodes):
        launcher.submit(job("exits", nodes[0]))
        ended(launcher)
        assert launcher.release("job-1")
        assert launcher.poll("job-1").state is JobState.MISSING
        assert launcher.logs("job-1") == {}
        assert not launcher.release("job-1")

    def test_a_live_job_is_not_released(self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords):
        launcher.submit(job("runs", nodes[0]))
        rank_records.until("pid")
        assert not launcher.release("job-1")
        assert launcher.poll("job-1").state is JobState.RUNNING
        launcher.cancel("job-1", grace_seconds=30)
        assert ended(launcher).state is JobState.STOPPED

    def test_a_job_outlives_its_submitter(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords, tmp_path: Path
    ):
        gate = tmp_path / "gate"
        gate.touch()
        submitted(submitter(launcher, job("runs", nodes[0]), tmp_path, gate))
        rank_records.until("pid")
        assert launcher.poll("job-1").state is JobState.RUNNING
        launcher.cancel("job-1", grace_seconds=30)
        assert ended(launcher).state is JobState.STOPPED

    def test_config_and_environment_reach_the_rank(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords, monkeypatch
    ):
        monkeypatch.setenv("SLIPWAY_CONTROL_PLANE", "1")
        expected_job = job("exits", nodes[0], steps=[1, 2.5, "drei"])
        launcher.submit(dataclasses.replace(expected_job, environment={"INCARNATION": "7"}))
        ended(launcher)
        [start] = rank_records.starts()
        assert start["config"] == expected_job.config
        facts = {"INCARNATION": "7", "SLIPWAY_NODE": nodes[0], "SLIPWAY_JOB": "job-1", "RANK": "0", "WORLD_SIZE": "1"}
        assert facts.items() <= start["environment"].items()
        assert "SLIPWAY_CONTROL_PLANE" not in start["environment"]

    def test_a_command_runs_in_the_folder_of_the_job(self, launcher: Launcher, nodes: Nodes):
        command = ("./env", "sh", "-c", 'echo "$(pwd -P) $(basename "$0")"')
        launcher.submit(Job("job-1", command, {}, nodes[:1], folder=TOOLS))
        assert ended(launcher).state is JobState.SUCCEEDED
        assert launcher.logs("job-1") == {nodes[0]: f"{TOOLS} config.json\n"}

    def test_a_command_that_cannot_be_started_is_named(self, launcher: Launcher, nodes: Nodes):
        launcher.submit(Job("job-1", ("./nowhere",), {}, nodes[:1], folder=TOOLS))
        assert ended(launcher).state is JobState.FAILED
        assert "./nowhere" in launcher.logs("job-1")[nodes[0]]
        assert "cannot be started: " in launcher.logs("job-1")[nodes[0]]

    @pytest.mark.parametrize("position", [0, 1])
    def test_a_job_takes_its_number_of_nodes_first_those_that_hold_its_data(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords, position: int
    ):
        chosen = nodes[position]
        launcher.submit(dataclasses.replace(job("exits", *nodes), size=1, prefer=(chosen,)))
        status = ended(launcher)
        assert (status.state, status.nodes) == (JobState.SUCCEEDED, (chosen,))
        assert [start["environment"]["SLIPWAY_NODE"] for start in rank_records.starts()] == [chosen]
        assert set(launcher.logs("job-1")) == {chosen}

    @pytest.mark.slow
    def test_the_ranks_of_two_nodes_find_their_places(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords
    ):
        launcher.submit(job("exits", *nodes))
        status = ended(launcher)
        assert (status.state, set(status.nodes)) == (JobState.SUCCEEDED, set(nodes))
        starts = [start["environment"] for start in rank_records.starts()]
        ranks = [(start["RANK"], start["LOCAL_RANK"], start["WORLD_SIZE"]) for start in starts]
        assert sorted(ranks) == [("0", "0", "2"), ("1", "0", "2")]
        assert {start["SLIPWAY_NODE"] for start in starts} == set(launcher.logs("job-1")) == set(nodes)

    @pytest.mark.slow
    def test_all_ranks_of_two_nodes_may_finish_when_cancelled(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords
    ):
        launcher.submit(job("runs", *nodes, linger_seconds=LINGER_SECONDS))
        rank_records.until("pid", count=2)
        launcher.cancel("job-1", grace_seconds=30)
        assert len(rank_records.until("finished", count=2)) == 2
        status = ended(launcher)
        assert (status.state, status.reason) == (JobState.STOPPED, "cancelled")

    @pytest.mark.slow
    def test_several_ranks_share_a_node(self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords):
        launcher.submit(dataclasses.replace(job("runs", nodes[0], linger_seconds=LINGER_SECONDS), ranks_per_node=2))
        rank_records.until("pid", count=2)
        launcher.cancel("job-1", grace_seconds=30)
        assert len(rank_records.until("finished", count=2)) == 2
        assert (ended(launcher).state, launcher.poll("job-1").reason) == (JobState.STOPPED, "cancelled")
        assert sorted(start["environment"]["LOCAL_RANK"] for start in rank_records.starts()) == ["0", "1"]

    @pytest.mark.slow
    def test_a_rank_that_is_killed_ends_the_job_on_all_nodes(
        self, launcher: Launcher, nodes: Nodes, rank_records: RankRecords, survivors: Survivors
    ):
        launcher.submit(job("clings", *nodes, dying_rank="1"))
        status = ended(launcher)
        [victim] = [start["environment"] for start in rank_records.starts() if start["rank"] == "1"]
        assert status.state is JobState.FAILED and victim["SLIPWAY_NODE"] in status.reason
        assert status.lost_nodes == ()
        survivors.until_gone()

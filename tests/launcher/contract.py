"""The launcher contract: what every implementation must pass.

A test module of an implementation derives from `LauncherContract` and gives the fixture `launcher`, a launcher
that can be pickled, for a fleet that has the nodes `node-0` and `node-1`.
"""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resources.launcher.protocol import Job, Launcher, State, Status
from tests.conftest import Marked, until
from tests.launcher.conftest import Notes


def job(notes: Notes, program: str, name: str = "job-1", nodes: tuple[str, ...] = ("node-0",), **config: object) -> Job:
    """A job of one of the programs beside this module."""
    command = ("python", "-m", f"tests.launcher.programs.{program}")
    return Job(name, command, {"notes": str(notes.path), **config}, nodes)


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
    command = [sys.executable, "-m", "tests.launcher.submitter", str(order), str(gate)]
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
        assert launcher.poll("nobody-submitted-this") == Status(State.MISSING)
        assert launcher.logs("nobody-submitted-this") == {}

    def test_cancelling_an_unknown_job_changes_nothing(self, launcher: Launcher):
        launcher.cancel("nobody-submitted-this", grace_seconds=0)
        assert launcher.poll("nobody-submitted-this").state is State.MISSING

    def test_a_job_whose_ranks_exit_with_0_succeeds(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits"))
        status = ended(launcher)
        assert (status.state, status.reason, status.lost_nodes) == (State.SUCCEEDED, "", ())
        assert status.submitted_at and status.started_at and status.ended_at
        assert status.submitted_at <= status.started_at <= status.ended_at

    def test_a_job_whose_rank_fails_says_where_and_with_which_exit_code(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits", code=3))
        status = ended(launcher)
        assert status.state is State.FAILED
        assert "node-0" in status.reason and "exit code 3" in status.reason
        assert status.lost_nodes == ()

    def test_submitting_twice_starts_one_job(self, launcher: Launcher, notes: Notes):
        for _ in range(2):
            launcher.submit(job(notes, "waits"))
        notes.until("pid")
        launcher.submit(job(notes, "waits"))
        launcher.cancel("job-1", grace_seconds=30)
        ended(launcher)
        assert len(notes.starts()) == 1

    def test_two_processes_that_submit_at_the_same_moment_start_one_job(
        self, launcher: Launcher, notes: Notes, tmp_path: Path
    ):
        gate = tmp_path / "gate"
        rivals = [submitter(launcher, job(notes, "waits"), tmp_path, gate) for _ in range(2)]
        gate.touch()
        for rival in rivals:
            submitted(rival)
        notes.until("pid")
        launcher.cancel("job-1", grace_seconds=30)
        ended(launcher)
        assert len(notes.starts()) == 1

    def test_another_job_under_a_name_that_is_taken_is_refused(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits", word="first"))
        with pytest.raises(ValueError, match=r"job-1.*already submitted with another config"):
            launcher.submit(job(notes, "exits", word="second"))
        assert ended(launcher).state is State.SUCCEEDED

    @pytest.mark.parametrize("name", ["", "a/b", "..", "a b"])
    def test_a_name_that_no_object_can_have_is_refused(self, launcher: Launcher, notes: Notes, name: str):
        with pytest.raises(ValueError, match="job name"):
            launcher.submit(job(notes, "exits", name=name))

    @pytest.mark.parametrize("nodes", [(), ("node-0", "node-0"), ("nowhere",)])
    def test_nodes_that_cannot_run_it_are_refused(self, launcher: Launcher, notes: Notes, nodes: tuple[str, ...]):
        with pytest.raises(ValueError, match="node"):
            launcher.submit(job(notes, "exits", nodes=nodes))
        assert launcher.poll("job-1").state is State.MISSING

    def test_a_job_that_has_ended_never_runs_again(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits", code=1))
        before = ended(launcher)
        launcher.submit(job(notes, "exits", code=1))
        launcher.cancel("job-1", grace_seconds=0)
        assert launcher.poll("job-1") == before
        assert len(notes.starts()) == 1

    def test_a_cancelled_job_may_finish_what_it_has_in_hand(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "waits"))
        notes.until("pid")
        launcher.cancel("job-1", grace_seconds=30)
        status = ended(launcher)
        assert (status.state, status.reason) == (State.STOPPED, "cancelled")
        assert notes.until("finished")

    def test_what_runs_after_the_grace_is_killed(self, launcher: Launcher, notes: Notes, marked: Marked):
        launcher.submit(job(notes, "clings"))
        notes.until("clinging")
        launcher.cancel("job-1", grace_seconds=0.5)
        status = ended(launcher)
        assert status.state is State.STOPPED and "node-0 was killed" in status.reason
        assert status.lost_nodes == ()
        marked.until_gone()

    def test_cancelling_again_does_not_prolong_the_grace(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "clings"))
        notes.until("clinging")
        launcher.cancel("job-1", grace_seconds=0.5)
        launcher.cancel("job-1", grace_seconds=3600)
        assert ended(launcher).state is State.STOPPED

    def test_logs_are_told_by_node_and_only_their_end(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits", word="farewell"))
        ended(launcher)
        assert launcher.logs("job-1") == {"node-0": "rank 0 says farewell\n"}
        assert launcher.logs("job-1", tail_bytes=9) == {"node-0": "farewell\n"}

    def test_a_released_job_is_missing_with_its_logs(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits"))
        ended(launcher)
        assert launcher.release("job-1")
        assert launcher.poll("job-1").state is State.MISSING
        assert launcher.logs("job-1") == {}
        assert not launcher.release("job-1")

    def test_a_live_job_is_not_released(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "waits"))
        notes.until("pid")
        assert not launcher.release("job-1")
        assert launcher.poll("job-1").state is State.RUNNING
        launcher.cancel("job-1", grace_seconds=30)
        assert ended(launcher).state is State.STOPPED

    def test_a_job_outlives_its_submitter(self, launcher: Launcher, notes: Notes, tmp_path: Path):
        gate = tmp_path / "gate"
        gate.touch()
        submitted(submitter(launcher, job(notes, "waits"), tmp_path, gate))
        notes.until("pid")
        assert launcher.poll("job-1").state is State.RUNNING
        launcher.cancel("job-1", grace_seconds=30)
        assert ended(launcher).state is State.STOPPED

    def test_config_and_environment_reach_the_rank(self, launcher: Launcher, notes: Notes, monkeypatch):
        monkeypatch.setenv("SLIPWAY_CONTROL_PLANE", "1")
        wanted = job(notes, "exits", steps=[1, 2.5, "drei"])
        launcher.submit(Job(wanted.name, wanted.command, wanted.config, wanted.nodes, environment={"INCARNATION": "7"}))
        ended(launcher)
        [start] = notes.starts()
        assert start["config"] == wanted.config
        facts = {"INCARNATION": "7", "SLIPWAY_NODE": "node-0", "SLIPWAY_JOB": "job-1", "RANK": "0", "WORLD_SIZE": "1"}
        assert facts.items() <= start["environment"].items()
        assert "SLIPWAY_CONTROL_PLANE" not in start["environment"]

    def test_a_command_runs_in_the_folder_of_the_job(self, launcher: Launcher, notes: Notes, tmp_path: Path):
        program = tmp_path / "program"
        program.write_text('#!/bin/sh\necho "$(pwd) $(basename "$1")"\n')
        program.chmod(0o755)
        launcher.submit(Job("job-1", ("./program",), {}, ("node-0",), folder=str(tmp_path)))
        assert ended(launcher).state is State.SUCCEEDED
        assert launcher.logs("job-1") == {"node-0": f"{tmp_path} config.json\n"}

    def test_a_command_that_cannot_be_started_is_named(self, launcher: Launcher, notes: Notes, tmp_path: Path):
        launcher.submit(Job("job-1", ("./nowhere",), {}, ("node-0",), folder=str(tmp_path)))
        assert ended(launcher).state is State.FAILED
        assert "./nowhere" in launcher.logs("job-1")["node-0"]
        assert "cannot be started: " in launcher.logs("job-1")["node-0"]

    @pytest.mark.slow
    def test_the_ranks_of_two_nodes_find_their_places(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "exits", nodes=("node-0", "node-1")))
        assert ended(launcher).state is State.SUCCEEDED
        places = [
            (start["environment"]["RANK"], start["environment"]["LOCAL_RANK"], start["environment"]["WORLD_SIZE"])
            for start in notes.starts()
        ]
        assert sorted(places) == [("0", "0", "2"), ("1", "0", "2")]
        assert {start["environment"]["SLIPWAY_NODE"] for start in notes.starts()} == {"node-0", "node-1"}
        assert "says hello" in launcher.logs("job-1")["node-1"]

    @pytest.mark.slow
    def test_all_ranks_of_two_nodes_may_finish_when_cancelled(self, launcher: Launcher, notes: Notes):
        launcher.submit(job(notes, "waits", nodes=("node-0", "node-1")))
        notes.until("pid", count=2)
        launcher.cancel("job-1", grace_seconds=30)
        status = ended(launcher)
        assert (status.state, status.reason) == (State.STOPPED, "cancelled")
        assert len(notes.until("finished", count=2)) == 2

    @pytest.mark.slow
    def test_several_ranks_share_a_node(self, launcher: Launcher, notes: Notes):
        launcher.submit(dataclasses.replace(job(notes, "waits"), ranks_per_node=2))
        notes.until("pid", count=2)
        launcher.cancel("job-1", grace_seconds=30)
        assert (ended(launcher).state, launcher.poll("job-1").reason) == (State.STOPPED, "cancelled")
        assert sorted(start["environment"]["LOCAL_RANK"] for start in notes.starts()) == ["0", "1"]
        assert len(notes.until("finished", count=2)) == 2

    @pytest.mark.slow
    def test_a_rank_that_is_killed_ends_the_job_on_all_nodes(self, launcher: Launcher, notes: Notes, marked: Marked):
        launcher.submit(job(notes, "clings", nodes=("node-0", "node-1")))
        notes.until("clinging", count=2)
        victim = notes.starts()[0]
        os.kill(victim["pid"], signal.SIGKILL)
        status = ended(launcher)
        assert status.state is State.FAILED and victim["environment"]["SLIPWAY_NODE"] in status.reason
        assert status.lost_nodes == ()
        marked.until_gone()

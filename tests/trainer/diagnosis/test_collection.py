"""Collection: what one node says of its ranks, in bounded time and size, whatever state they are in."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.trainer.diagnosis import collection, folder, health, stacks
from slipway.trainer.diagnosis.collection import DiagnosedNode
from slipway.trainer.diagnosis.commands import NoEvidence
from tests.conftest import until

ID = "000001.0000"
Start = Callable[..., int]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DiagnosedNode]:
    stacks_folder = tmp_path / "stacks"
    stacks_folder.mkdir()
    yield DiagnosedNode(tmp_path / "store", "node-0", stacks_folder, (tmp_path,), lambda: b"the last line\n")


@pytest.fixture
def start(node: DiagnosedNode) -> Iterator[Start]:
    """Start a rank that hangs so; its pid."""
    started = []

    def start_rank(rank: int, how: str = "read") -> int:
        command = [sys.executable, "-m", "tests.trainer.diagnosis.hanging_rank", how]
        environment = {**os.environ, stacks.VARIABLE: str(node.stacks), "RANK": str(rank)}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        until(lambda: stacks.state(process.pid) == "S", "the rank to wait")
        return process.pid

    yield start_rank
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def manifest(node: DiagnosedNode) -> folder.DiagnosisManifest:
    [diagnosis] = folder.manifests(node.store, ID)
    return diagnosis


def test_each_rank_says_where_it_is_and_goes_on(node: DiagnosedNode, start: Start):
    pids = [start(0), start(1, "lock")]
    assert collection.collect(node, ID, "a test", 5.0)
    diagnosis = manifest(node)
    assert [(rank.rank, rank.pid, rank.state) for rank in diagnosis.ranks] == [
        (0, pids[0], "waiting"),
        (1, pids[1], "waiting"),
    ]
    assert all(rank.where.startswith("hang (hanging_rank.py:") for rank in diagnosis.ranks)
    text = folder.text(node.store, ID, "node-0", "stacks.txt")
    assert "=== rank 0" in text and "os.read(os.pipe()[0], 1)" in text
    assert folder.text(node.store, ID, "node-0", "log.txt") == "the last line\n"
    assert all(stacks.state(pid) for pid in pids)


def test_a_rank_that_cannot_answer_costs_no_more_than_the_time_there_is_and_is_said_to_be_lacking(
    node: DiagnosedNode, start: Start
):
    pid = start(0)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stacks.state(pid) == "T", "the rank to stop")
    assert collection.collect(node, ID, "a test", 1.0)
    diagnosis = manifest(node)
    assert diagnosis.ranks[0].state == "stopped"
    assert diagnosis.missing["stacks of rank 0"] == "it is stopped, and cannot write"


def test_a_process_that_would_die_of_the_signal_is_left_alone(node: DiagnosedNode):
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        assert node.stacks is not None
        (node.stacks / f"0.00000.{sleeping.pid}").touch()
        assert collection.collect(node, ID, "a test", 0.5)
        assert manifest(node).missing["stacks of rank 0"] == "it has no handler for the signal"
        assert sleeping.poll() is None
        sleeping.kill()


def slow(seconds: float) -> bytes:
    time.sleep(30)
    return b""


def test_a_source_that_hangs_is_lacking_and_keeps_no_other_back(node: DiagnosedNode, monkeypatch: pytest.MonkeyPatch):
    real = health.parts
    monkeypatch.setattr(health, "parts", lambda disks: {**real(disks), "a slow tool": slow})
    assert collection.collect(node, ID, "a test", 0.5)
    diagnosis = manifest(node)
    assert diagnosis.missing["a slow tool"] == "it took longer than the time there was"
    assert "MemTotal" in folder.text(node.store, ID, "node-0", "health.txt")


def test_a_tool_that_is_not_there_is_said_to_be_lacking(node: DiagnosedNode, monkeypatch: pytest.MonkeyPatch):
    def missing(seconds: float) -> bytes:
        raise NoEvidence("nvidia-smi is not installed")

    monkeypatch.setattr(health, "parts", lambda disks: {"gpus": missing})
    assert collection.collect(node, ID, "a test", 0.5)
    assert manifest(node).missing["gpus"] == "nvidia-smi is not installed"


def test_the_evidence_of_a_node_has_a_size_and_the_largest_file_is_left_out():
    files_within, files_beyond = folder.bounded({"small": b"1", "large": b"12345"}, most=5)
    assert files_within == {"small": b"1"} and files_beyond == {
        "large": "it has 5 bytes, and the evidence of a node 5 at most"
    }


def test_what_a_node_found_first_stands(node: DiagnosedNode):
    assert collection.collect(node, ID, "first", 0.3)
    assert not collection.collect(node, ID, "second", 0.3)
    assert manifest(node).why == "first"
    assert [folder_of_node.name for folder_of_node in (node.store / "incidents" / ID).iterdir()] == ["node-0"]

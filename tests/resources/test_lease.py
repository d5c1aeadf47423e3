"""Lease: of the processes that would decide for a home one does, and the next one when that is dead or superseded."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slipway.resources.lease import FILE, HomeLease
from tests.conftest import Marked, until

CODE = Path(__file__).resolve().parents[2]
HOLDS = (
    "import sys, time; from pathlib import Path; from slipway.resources.lease import HomeLease\n"
    "lease = HomeLease(Path(sys.argv[1])); assert lease.take() is None; time.sleep(600)"
)

ASKS = (
    "import sys; from pathlib import Path; from slipway.resources.lease import HomeLease\n"
    "lease = HomeLease(Path(sys.argv[1]))\n"
    "for line in sys.stdin:\n"
    "    with lease.decision() as why:\n"
    "        print(why or 'decides', flush=True)\n"
    "        if line.strip() == 'long': sys.stdin.readline()"
)
"""A code server that decides at each line of its input; after `long`, until the next line."""


class CodeServer:
    """A process that decides when it is told to; two of one test are of one control plane."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-c", ASKS, str(home)]
        self.process = subprocess.Popen(command, cwd=CODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def decide(self, how: str = "") -> str:
        """What came of it: `decides`, or why not."""
        self.tell(how)
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, how: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()


@pytest.fixture
def reloaded(tmp_path: Path, marked: Marked) -> Iterator[tuple[CodeServer, CodeServer]]:
    """A code server that decides, and one that the same control plane has started after it."""
    older = CodeServer(tmp_path)
    try:
        assert older.decide() == "decides"
        newer = CodeServer(tmp_path)
        try:
            yield older, newer
        finally:
            newer.process.kill()
            newer.process.communicate()
    finally:
        older.process.kill()
        older.process.communicate()


def holder_of(home: Path) -> int:
    current = HomeLease(home).current_holder()
    return current.pid if current else 0


@contextmanager
def other(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lease of a home."""
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(home)], cwd=CODE) as process:
        try:
            until(lambda: holder_of(home) == process.pid, "the other to hold the lease")
            yield process
        finally:
            process.kill()


def test_the_first_holds_it_and_may_ask_again(tmp_path: Path):
    lease = HomeLease(tmp_path)
    assert lease.current_holder() is None
    assert lease.take() is None and lease.take() is None
    current = lease.current_holder()
    assert current is not None and (current.pid, current.host) == (os.getpid(), socket.gethostname())


def test_the_second_is_told_who_holds_it_and_takes_over_when_that_is_killed(tmp_path: Path, marked: Marked):
    lease = HomeLease(tmp_path)
    with other(tmp_path) as first:
        refusal = lease.take()
        assert refusal is not None and refusal.startswith(
            f"another control plane decides for {tmp_path}: process {first.pid} on {socket.gethostname()}, since 20"
        )
        assert refusal.endswith("this one only shows the state, and takes over when the other has ended")
        os.kill(first.pid, signal.SIGSTOP)
        assert lease.take() is not None, "stopped is not dead"
        first.kill()
        first.wait()
        assert lease.take() is None
    assert lease.take() is None


def test_asking_who_holds_it_takes_nothing(tmp_path: Path, marked: Marked):
    HomeLease(tmp_path).current_holder()
    with other(tmp_path):
        assert HomeLease(tmp_path).current_holder() is not None
    assert HomeLease(tmp_path).current_holder() is None


def test_a_home_that_was_removed_and_made_anew_has_a_new_lease(tmp_path: Path, marked: Marked):
    lease = HomeLease(tmp_path)
    assert lease.take() is None
    (tmp_path / FILE).unlink()
    with other(tmp_path):
        assert lease.take() is not None


def test_a_lease_whose_file_is_damaged_is_held_all_the_same(tmp_path: Path, marked: Marked):
    with other(tmp_path):
        (tmp_path / FILE).write_bytes(b"{")
        assert HomeLease(tmp_path).take() is not None


def test_a_home_that_cannot_be_written_is_an_error_and_no_lease(tmp_path: Path):
    (tmp_path / "home").write_text("a file")
    try:
        HomeLease(tmp_path / "home").take()
    except OSError:
        return
    raise AssertionError("the lease of a file was taken")


def test_a_code_server_that_was_reloaded_decides_no_more_and_the_newer_one_decides_at_once(
    tmp_path: Path, reloaded: tuple[CodeServer, CodeServer]
):
    older, newer = reloaded
    assert newer.decide() == "decides", "the older one lives on, as a run that it has loaded does"
    assert older.process.poll() is None and holder_of(tmp_path) == newer.process.pid
    refusal = older.decide()
    assert refusal.startswith(f"a newer code server of this control plane decides: process {newer.process.pid} on ")
    assert newer.decide() == "decides"
    newer.process.kill()
    newer.process.wait()
    assert older.decide() != "decides", "it was superseded for good"


def test_the_newer_code_server_waits_for_the_decision_that_the_older_one_is_making(
    tmp_path: Path, reloaded: tuple[CodeServer, CodeServer]
):
    older, newer = reloaded
    assert older.decide("long") == "decides"
    refusal = newer.decide()
    assert refusal.startswith(f"the older code server is still deciding: process {older.process.pid} on ")
    older.tell()
    until(lambda: newer.decide() == "decides", "the newer one to decide")


def test_another_control_plane_is_not_superseded_however_new_it_is(tmp_path: Path, marked: Marked):
    lease = HomeLease(tmp_path)
    assert lease.take() is None
    other_plane = CodeServer(tmp_path)
    try:
        assert other_plane.decide().startswith("another control plane decides")
        assert lease.take() is None
    finally:
        other_plane.process.kill()
        other_plane.process.communicate()

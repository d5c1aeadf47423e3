"""Lease: of the processes that would decide for a home one does, and the next one when that is dead."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resources.lease import FILE, HomeLease
from tests.conftest import Marked, until

CODE = Path(__file__).resolve().parents[2]
HOLDS = (
    "import sys, time; from pathlib import Path; from resources.lease import HomeLease\n"
    "lease = HomeLease(Path(sys.argv[1])); assert lease.take() is None; time.sleep(600)"
)


def holder_of(home: Path) -> int:
    found = HomeLease(home).holder()
    return found.pid if found else 0


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
    assert lease.holder() is None
    assert lease.take() is None and lease.take() is None
    holder = lease.holder()
    assert holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname())


def test_the_second_is_told_who_holds_it_and_takes_over_when_that_is_killed(tmp_path: Path, marked: Marked):
    lease = HomeLease(tmp_path)
    with other(tmp_path) as first:
        said = lease.take()
        assert said is not None and said.startswith(
            f"another control plane decides for {tmp_path}: process {first.pid} on {socket.gethostname()}, since 20"
        )
        assert said.endswith("this one only shows what is, and takes over when that one has ended")
        os.kill(first.pid, signal.SIGSTOP)
        assert lease.take() is not None, "stopped is not dead"
        first.kill()
        first.wait()
        assert lease.take() is None
    assert lease.take() is None


def test_asking_who_holds_it_takes_nothing(tmp_path: Path, marked: Marked):
    HomeLease(tmp_path).holder()
    with other(tmp_path):
        assert HomeLease(tmp_path).holder() is not None
    assert HomeLease(tmp_path).holder() is None


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

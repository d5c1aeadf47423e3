"""Lock: who does not wait is told who holds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.trainer.base import lock, processes
from tests.conftest import Marked, until

HOLDS = "import sys, time; from slipway.trainer.base import lock; "
HOLDS += "c = lock.exclusive(sys.argv[1]); c.__enter__(); time.sleep(60)"


def lock_error(folder: Path) -> str:
    try:
        with lock.at_once(folder):
            return ""
    except lock.LockHeld as error:
        return str(error)


def test_a_lock_that_is_free_is_taken_at_once(tmp_path: Path):
    with lock.at_once(tmp_path / "new"):
        assert lock_error(tmp_path / "new").startswith(f"{tmp_path}/new is locked by process {os.getpid()} (")
    assert lock_error(tmp_path / "new") == ""


def test_the_process_that_holds_a_lock_is_named_also_when_it_is_stopped(tmp_path: Path, marked: Marked):
    command = [sys.executable, "-c", HOLDS.replace("sys.argv[1]", f"__import__('pathlib').Path({str(tmp_path)!r})")]
    with subprocess.Popen(command) as locking_process:
        message = until(lambda: lock_error(tmp_path), "the other process to have the lock")
        assert f"is locked by process {locking_process.pid} ({Path(sys.executable)} -c import sys" in message
        locking_process.kill()
    assert lock_error(tmp_path) == ""


@pytest.mark.parametrize("pid", [0, 1 << 30])
def test_a_process_that_is_not_there_has_no_command_line(pid: int):
    assert processes.command_line(pid) == ""


def test_who_waits_for_a_lock_gives_up_at_the_deadline_and_is_told_who_holds_it(tmp_path: Path):
    with lock.at_once(tmp_path), pytest.raises(lock.LockHeld, match=f"is locked by process {os.getpid()} "):
        lock.within(tmp_path, 0.1).__enter__()
    with lock.within(tmp_path, 0.1):
        assert lock_error(tmp_path) != ""


def test_a_lock_that_is_kept_until_the_exit_is_held_while_its_process_has_not_ended(tmp_path: Path, marked: Marked):
    """Also while its interpreter clears its modules."""
    code = (
        "import pathlib, sys, time; from slipway.trainer.base import lock\n"
        "class Late:\n"
        "    def __del__(self): time.sleep(0.5)\n"
        "lock.until_exit(pathlib.Path(sys.argv[1]), 1.0); lock.late = Late(); print('taken', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as locking_process:
        assert locking_process.stdout is not None and locking_process.stdout.readline() == "taken\n"
        until(lambda: lock_error(tmp_path) == "", "the lock to be free")
        assert marked.pids() == []

"""Scratch folders: one goes with its process, and one whose process was killed goes with the next."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.trainer.base import lock, scratch

LOCKING_PROGRAM = """
import sys
from pathlib import Path
from slipway.trainer.base import scratch
with scratch.folder("some", Path(sys.argv[1])) as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


def left_by_killed(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_text("half")
    return folder


def test_a_folder_is_there_for_its_holder_alone_and_gone_afterwards(tmp_path: Path):
    with scratch.folder("some", tmp_path / "new") as one, scratch.folder("some", tmp_path / "new") as other:
        assert one != other and one.name.startswith("some.")
        (one / "file").write_text("x")
    assert list((tmp_path / "new").iterdir()) == []


def test_what_a_killed_process_has_left_goes_with_the_next_folder_of_that_name(tmp_path: Path):
    killed, others = left_by_killed(tmp_path, "some.abc"), left_by_killed(tmp_path, "something.abc")
    with scratch.folder("some", tmp_path):
        assert not killed.exists() and others.exists()


def test_a_folder_that_a_process_holds_stays(tmp_path: Path):
    locked_folder = left_by_killed(tmp_path, "some.abc")
    with lock.exclusive(locked_folder), scratch.folder("some", tmp_path):
        assert (locked_folder / "below" / "file").exists()
    assert list(scratch.abandoned("some", tmp_path)) == [locked_folder]


def test_an_abandoned_folder_is_held_while_it_is_looked_at(tmp_path: Path):
    abandoned = left_by_killed(tmp_path, "some.abc")
    for folder in scratch.abandoned("some", tmp_path):
        assert folder == abandoned and list(scratch.abandoned("some", tmp_path)) == []


def test_a_link_is_not_followed(tmp_path: Path):
    linked_folder = left_by_killed(tmp_path / "elsewhere", "kept")
    (tmp_path / "some.abc").symlink_to(linked_folder)
    with scratch.folder("some", tmp_path):
        assert (linked_folder / "below" / "file").exists()


def test_a_folder_that_fails_what_it_is_for_is_removed_all_the_same(tmp_path: Path):
    with pytest.raises(ValueError, match="no"), scratch.folder("some", tmp_path):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


def test_what_a_process_that_gets_sigkill_has_left_goes_and_what_a_live_one_holds_stays(tmp_path: Path):
    command = [sys.executable, "-c", LOCKING_PROGRAM, str(tmp_path)]
    holders = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, live = (Path(process.stdout.readline().strip()) for process in holders if process.stdout)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert (killed / "file").exists() and (live / "file").exists()
        with scratch.folder("some", tmp_path):
            assert not killed.exists() and (live / "file").read_text() == "x"
    finally:
        for process in holders:
            process.communicate()
    assert list(tmp_path.iterdir()) == []

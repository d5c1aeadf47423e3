"""A temporary folder goes with its process, also with one that is killed; one that a process holds stays."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainer.base import temporary

HOLDER = """
import sys
from trainer.base import temporary
with temporary.folder("held") as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's folder of temporary files, for this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_is_empty_and_gone_at_the_end(elsewhere: Path):
    with temporary.folder("test") as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").write_text("x")
    assert list(elsewhere.iterdir()) == []


def test_a_folder_is_gone_also_after_an_error(elsewhere: Path):
    with pytest.raises(ValueError, match="an error"), temporary.folder("test"):
        raise ValueError("an error")
    assert list(elsewhere.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_what_a_live_one_holds_is_not(elsewhere: Path):
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, live = (Path(each.stdout.readline().strip()) for each in holders if each.stdout)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert (killed / "file").exists() and (live / "file").exists()
        with temporary.folder("next") as own:
            assert own.exists() and not killed.exists()
            assert (live / "file").read_text() == "x"
    finally:
        for each in holders:
            each.communicate()
    assert list(elsewhere.iterdir()) == []


def test_of_a_folder_that_is_nested_in_one_process_both_stay():
    with temporary.folder("outer") as outer, temporary.folder("inner") as inner:
        temporary.remove_abandoned()
        assert outer.exists() and inner.exists()


def test_other_files_and_links_are_left_alone(elsewhere: Path, tmp_path_factory: pytest.TempPathFactory):
    target = tmp_path_factory.mktemp("target")
    (target / "kept").write_text("x")
    (elsewhere / f"{temporary.PREFIX}file").write_text("x")
    (elsewhere / f"{temporary.PREFIX}link").symlink_to(target)
    (elsewhere / "evaluation-of-another").mkdir()
    temporary.remove_abandoned()
    assert (target / "kept").exists() and (elsewhere / "evaluation-of-another").exists()
    assert (elsewhere / f"{temporary.PREFIX}file").exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_anew(monkeypatch: pytest.MonkeyPatch):
    made, locked = list[Path](), temporary._locked

    def first_removed(path: Path) -> int:
        made.append(path)
        if len(made) == 1:
            path.rmdir()
        return locked(path)

    monkeypatch.setattr(temporary, "_locked", first_removed)
    with temporary.folder("test") as folder:
        assert folder.exists() and len(made) == 2

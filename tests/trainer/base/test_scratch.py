"""Scratch folders: one goes with its process, and one whose process was killed goes with the next."""

from pathlib import Path

import pytest

from trainer.base import lock, scratch

pytestmark = pytest.mark.pure


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
    held = left_by_killed(tmp_path, "some.abc")
    with lock.exclusive(held), scratch.folder("some", tmp_path):
        assert (held / "below" / "file").exists()
    assert list(scratch.abandoned("some", tmp_path)) == [held]


def test_an_abandoned_folder_is_held_while_it_is_looked_at(tmp_path: Path):
    left = left_by_killed(tmp_path, "some.abc")
    for each in scratch.abandoned("some", tmp_path):
        assert each == left and list(scratch.abandoned("some", tmp_path)) == []


def test_a_link_is_not_followed(tmp_path: Path):
    elsewhere = left_by_killed(tmp_path / "elsewhere", "kept")
    (tmp_path / "some.abc").symlink_to(elsewhere)
    with scratch.folder("some", tmp_path):
        assert (elsewhere / "below" / "file").exists()


def test_a_folder_that_fails_what_it_is_for_is_removed_all_the_same(tmp_path: Path):
    with pytest.raises(ValueError, match="no"), scratch.folder("some", tmp_path):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []

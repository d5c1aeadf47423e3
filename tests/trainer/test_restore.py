"""Restore: the newest committed checkpoint that verifies; what is damaged is set aside and said."""

from pathlib import Path

from tests.trainer.conftest import read_json
from tests.trainer.test_fence import claim
from trainer import fence
from trainer.checkpoint import format, restore
from trainer.fence import Commit, Token


def committed(tmp_path: Path, step: int) -> Commit:
    folder = f"checkpoints/{step}"
    manifest = format.write(tmp_path / folder, "layout/1", {"model": b"weights of %d" % step, "progress": b"{}"})
    value = Commit(step, Token(1), folder, manifest)
    fence.commit(tmp_path, value)
    return value


def damage(tmp_path: Path, value: Commit) -> None:
    (tmp_path / value.folder / "model").write_bytes(b"other weights")


def newest_good(tmp_path: Path) -> tuple[int | None, list[int]]:
    """The step restored, and the steps that were said to be damaged."""
    said: list[int] = []
    found = restore.newest_good(tmp_path, tmp_path, lambda value, reason: said.append(value.step))
    return found[0].step if found else None, said


def test_without_a_commit_there_is_nothing_to_restore(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    format.write(tmp_path / "checkpoints" / "5", "layout/1", {"model": b"never committed"})
    assert newest_good(tmp_path) == (None, [])


def test_the_newest_commit_is_restored_with_its_files(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    for step in (5, 10):
        committed(tmp_path, step)
    found = restore.newest_good(tmp_path, tmp_path, lambda *_: None)
    assert found is not None
    assert (found[0].step, found[1]["model"]) == (10, b"weights of 10")


def test_damaged_ones_are_passed_over_set_aside_and_not_tried_again(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    _, middle, last = (committed(tmp_path, step) for step in (5, 10, 15))
    for value in (middle, last):
        damage(tmp_path, value)
    assert newest_good(tmp_path) == (5, [15, 10])
    assert newest_good(tmp_path) == (5, [])
    aside = tmp_path / "set-aside"
    assert sorted(path.stem for path in aside.iterdir()) == [middle.name, last.name]
    reason = read_json(aside / f"{last.name}.json")["reason"]
    assert "checkpoints/15/model: found" in reason and "model: found 13 bytes, expected 13" not in reason


def test_when_all_are_damaged_training_begins_again(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    damage(tmp_path, committed(tmp_path, 5))
    assert newest_good(tmp_path) == (None, [5])


def test_a_damaged_one_keeps_its_bytes_for_whoever_looks_into_it(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    value = committed(tmp_path, 5)
    damage(tmp_path, value)
    newest_good(tmp_path)
    assert (tmp_path / value.folder / "model").read_bytes() == b"other weights"

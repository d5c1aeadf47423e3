"""Restore: the newest committed checkpoint that verifies; what is damaged is set aside and said."""

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.keeping import ALONE, Keeps, saved
from trainer import fence
from trainer.checkpoint import files, format, restore
from trainer.fence import Commit


def newest_good(folder: Path) -> tuple[int | None, list[int]]:
    """The step of what would be restored, and those set aside on the way."""
    told: list[int] = []
    places = restore.durable(folder / "durable")
    found = restore.newest_good(folder / "store", ALONE, places, lambda value, _: told.append(value.step))
    if found is None:
        return None, told
    assert found[1].progress().step == found[0].step
    restore.load(Keeps(), found[1], ALONE)
    return found[0].step, told


def damage(folder: Path, value: Commit) -> None:
    (folder / "durable" / value.folder / "model-00000.safetensors").write_bytes(b"other weights")


def test_without_a_commit_there_is_nothing_to_restore(tmp_path: Path) -> None:
    (commit,) = saved(tmp_path, 5)
    (tmp_path / "store" / "commits" / f"{commit.name}.json").unlink()
    assert newest_good(tmp_path) == (None, [])


def test_the_newest_commit_is_restored(tmp_path: Path) -> None:
    saved(tmp_path, 5, 10)
    assert newest_good(tmp_path) == (10, [])


def test_damaged_ones_are_passed_over_set_aside_and_not_tried_again(tmp_path: Path) -> None:
    _, middle, last = saved(tmp_path, 5, 10, 15)
    for value in (middle, last):
        damage(tmp_path, value)
    assert newest_good(tmp_path) == (5, [15, 10])
    assert newest_good(tmp_path) == (5, [])
    reasons = fence.set_aside_reasons(tmp_path / "store")
    assert list(reasons) == [middle.name, last.name]
    assert "model-00000.safetensors: found 13 bytes, expected" in reasons[last.name]


def test_when_all_are_damaged_training_begins_again(tmp_path: Path) -> None:
    damage(tmp_path, saved(tmp_path, 5)[0])
    assert newest_good(tmp_path) == (None, [5])


def test_a_damaged_one_keeps_its_bytes_for_whoever_looks_into_it(tmp_path: Path) -> None:
    (value,) = saved(tmp_path, 5)
    damage(tmp_path, value)
    newest_good(tmp_path)
    assert (tmp_path / "durable" / value.folder / "model-00000.safetensors").read_bytes() == b"other weights"


FILES = ["model", "optimiser", "frozen", "progress", "MANIFEST"]


@pytest.mark.parametrize("kind", FILES)
def test_every_flipped_bit_truncation_and_missing_file_is_found_and_answered(tmp_path: Path, kind: str) -> None:
    """Twelve flips and four truncations in each kind of file, at seeded places, and its absence."""
    first, last = saved(tmp_path, 5, 10)
    (path,) = (tmp_path / "durable" / last.folder).glob(f"{kind}*")
    # The frozen file is one with that of the checkpoint before; here it is to be damaged in the last alone.
    whole, chance = path.read_bytes(), random.Random(f"{kind} 7")
    path.unlink()
    aside = tmp_path / "store" / "set-aside" / f"{last.name}.json"

    def fault(number: int) -> bytes | None:
        if number == 16:
            return None
        if number >= 12:
            return whole[: chance.randrange(len(whole))]
        bit = chance.randrange(8 * len(whole))
        return whole[: bit // 8] + bytes([whole[bit // 8] ^ (1 << bit % 8)]) + whole[bit // 8 + 1 :]

    for number in range(17):
        if (data := fault(number)) is not None:
            path.write_bytes(data)
        assert newest_good(tmp_path) == (first.step, [last.step])
        assert path.name in fence.set_aside_reasons(tmp_path / "store")[last.name]
        aside.unlink()
        path.unlink(missing_ok=True)
    path.write_bytes(whole)
    assert newest_good(tmp_path) == (last.step, [])


def test_a_second_place_is_read_when_the_first_is_damaged(tmp_path: Path) -> None:
    (value,) = saved(tmp_path, 5)
    damage(tmp_path, value)
    saved(tmp_path / "elsewhere", 5)
    copy = tmp_path / "elsewhere" / "durable" / value.folder
    places = [tmp_path / "durable" / value.folder, copy]
    other = fence.commits(tmp_path / "elsewhere" / "store")[0]
    found = restore.newest_good(tmp_path / "elsewhere" / "store", ALONE, lambda _: places, lambda *_: None)
    assert found is not None and found[0] == other and found[1].folder == copy


def test_a_read_error_that_passes_sets_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 5)
    failing: dict[str, Any] = {"readv": os.readv, "preadv": os.preadv}
    for name, ask in failing.items():
        failures = [errno.EIO, errno.ESTALE]

        def read(*arguments: object, ask: Any = ask, failures: list[int] = failures) -> Any:
            if failures:
                raise OSError(failures.pop(), "a passing error")
            return ask(*arguments)

        monkeypatch.setattr(os, name, read)
    assert newest_good(tmp_path) == (5, [])


def test_a_read_error_that_stays_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SECONDS", 0.1)
    saved(tmp_path, 5)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "readv", fail)
    assert newest_good(tmp_path) == (None, [5])
    (reason,) = fence.set_aside_reasons(tmp_path / "store").values()
    assert reason.endswith("cannot be read: Input/output error")


def test_a_tier_that_is_not_mounted_sets_nothing_aside(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    (tmp_path / "durable").rename(tmp_path / "unmounted")
    with pytest.raises(OSError, match="is the tier mounted"):
        newest_good(tmp_path)
    assert fence.set_aside_reasons(tmp_path / "store") == {}


def test_a_checkpoint_of_another_layout_is_refused_and_not_set_aside(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    folder = "checkpoints/tiny/000000010.000001.0000"
    manifest = format.write(tmp_path / "durable" / folder, "chunks/9", {"progress.json": b"{}"})
    fence.commit(tmp_path / "store", Commit(10, fence.Token(1), folder, manifest))
    with pytest.raises(ValueError, match=r"found the layout 'chunks/9', expected 'chunks/1'"):
        newest_good(tmp_path)
    assert fence.set_aside_reasons(tmp_path / "store") == {}

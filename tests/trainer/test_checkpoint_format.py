"""The checkpoint's folder: visible in one step with everything in it, and no damage goes unseen."""

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import mounted
from trainer import digest
from trainer.checkpoint import format
from trainer.checkpoint.format import Damaged

FILES = {"model": random.Random(1).randbytes(5000), "progress": b'{"step": 5}', "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "000000005.000001.0000"


def test_a_checkpoint_reads_back_as_it_was_written(folder: Path) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    assert format.read(folder, manifest) == FILES
    assert format.read_manifest(folder, manifest).layout == "layout/1"


def test_a_checkpoint_is_named_by_the_sha256_of_its_manifest(folder: Path) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    assert digest.sha256((folder / format.MANIFEST).read_bytes()) == manifest


def test_equal_files_have_equal_manifests(tmp_path: Path) -> None:
    assert format.write(tmp_path / "a", "layout/1", FILES) == format.write(tmp_path / "b", "layout/1", FILES)


def test_a_checkpoint_becomes_visible_by_one_rename_with_all_its_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, moments = Path.rename, []

    def watched(source: Path, target: Path) -> Path:
        visible = [path.name for path in folder.parent.iterdir() if not path.name.startswith(".")]
        moments.append((visible, sorted(path.name for path in source.iterdir())))
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", watched)
    format.write(folder, "layout/1", FILES)
    assert moments == [([], sorted([*FILES, format.MANIFEST]))]


def test_no_single_flipped_bit_goes_unseen(folder: Path) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    chance = random.Random(5)
    paths = [path for path in folder.iterdir() if path.stat().st_size]
    for _ in range(60):
        path = chance.choice(paths)
        whole = path.read_bytes()
        bit = chance.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=path.name):
            format.read(folder, manifest)
        path.write_bytes(whole)
    assert format.read(folder, manifest) == FILES


@pytest.mark.parametrize("name", [*FILES, format.MANIFEST])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    (folder / name).unlink()
    with pytest.raises(Damaged, match=rf"{name}: cannot be read: No such file"):
        format.read(folder, manifest)


def test_a_truncated_file_is_named_with_its_sizes(folder: Path) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    os.truncate(folder / "model", 4999)
    with pytest.raises(Damaged, match="model: found 4999 bytes, expected 5000"):
        format.read(folder, manifest)


def test_a_missing_folder_is_damage_too(folder: Path) -> None:
    with pytest.raises(Damaged, match="cannot be read"):
        format.read(folder, "0" * 64)


def test_a_whole_checkpoint_that_is_not_the_committed_one_is_damage(tmp_path: Path) -> None:
    committed = format.write(tmp_path / "a", "layout/1", FILES)
    format.write(tmp_path / "b", "layout/1", {**FILES, "model": b"other weights"})
    with pytest.raises(Damaged, match=rf"found SHA-256 .* expected {committed[:16]}"):
        format.read(tmp_path / "b", committed)


def test_a_checkpoint_of_another_format_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.checkpoint.manifest.FORMAT", "slipway.checkpoint/9")
    manifest = format.write(folder, "layout/1", FILES)
    monkeypatch.undo()
    with pytest.raises(Damaged, match=r"found format slipway\.checkpoint/9, expected slipway\.checkpoint/1"):
        format.read(folder, manifest)


def test_a_second_write_to_the_same_place_fails_and_leaves_the_first(folder: Path) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    with pytest.raises(OSError):
        format.write(folder, "layout/1", {"model": b"other weights"})
    assert format.read(folder, manifest) == FILES
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_what_a_killed_writer_left_is_swept_away_and_nothing_else(folder: Path) -> None:
    manifest = format.write(folder, "layout/1", FILES)
    left = folder.parent / ".000000010.000001.0000.k2j1h"
    shutil.copytree(folder, left)
    format.sweep(folder.parent)
    assert not left.exists()
    assert format.read(folder, manifest) == FILES


def test_there_is_nothing_to_sweep_before_the_first_checkpoint(tmp_path: Path) -> None:
    format.sweep(tmp_path / "absent")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with mounted(tmp_path / "disk", "size=256k") as disk:
        yield disk


def test_a_full_disk_leaves_nothing_of_a_checkpoint_and_the_ones_before_whole(small_disk: Path) -> None:
    manifest = format.write(small_disk / "first", "layout/1", FILES)
    with pytest.raises(OSError, match="No space left"):
        format.write(small_disk / "second", "layout/1", {"model": bytes(300_000), "progress": b"{}"})
    assert [path.name for path in small_disk.iterdir()] == ["first"]
    assert format.read(small_disk / "first", manifest) == FILES


def test_nothing_in_a_checkpoint_is_ever_unpickled() -> None:
    """Weights come from anywhere; a pickle in them would run as code."""
    sources = [path.read_text() for path in Path(format.__file__).parent.glob("*.py")]
    imports = [line for source in sources for line in source.splitlines() if "import " in line]
    assert not [line for line in imports if "pickle" in line or "joblib" in line]
    calls = re.compile(r"(?<!safetensors\.)torch\.(load|save)\b|allow_pickle|\beval\(|\bexec\(")
    assert not [found.group() for source in sources for found in calls.finditer(source)]

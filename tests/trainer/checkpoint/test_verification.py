"""A checkpoint's folder: it becomes visible in one step with every file, and every damage is found."""

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk import publication, verification
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.record.fence import Token
from tests.disks import mounted

pytestmark = pytest.mark.pure

FILES = {"model": random.Random(1).randbytes(5000), "progress": b'{"step": 5}', "empty": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "000000005.000001.0000"


def test_a_checkpoint_reads_back_as_it_was_written(folder: Path) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    assert verification.read_files(folder, manifest) == FILES
    assert verification.read_manifest(folder, manifest).layout == "layout/1"


def test_a_checkpoint_is_named_by_the_sha256_of_its_manifest(folder: Path) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    assert digest.sha256((folder / MANIFEST).read_bytes()) == manifest


def test_equal_files_have_equal_manifests(tmp_path: Path) -> None:
    assert publication.write(tmp_path / "a", "layout/1", FILES) == publication.write(tmp_path / "b", "layout/1", FILES)


def test_a_checkpoint_becomes_visible_by_one_rename_with_all_its_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, moments = Path.rename, []

    def tracked_rename(source: Path, target: Path) -> Path:
        visible = [path.name for path in folder.parent.iterdir() if not path.name.startswith(".")]
        moments.append((visible, sorted(path.name for path in source.iterdir())))
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", tracked_rename)
    publication.write(folder, "layout/1", FILES)
    assert moments == [([], sorted([*FILES, MANIFEST]))]


def test_every_flipped_bit_is_found(folder: Path) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    chance = random.Random(5)
    paths = [path for path in folder.iterdir() if path.stat().st_size]
    for _ in range(60):
        path = chance.choice(paths)
        content = path.read_bytes()
        bit = chance.randrange(8 * len(content))
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedCheckpoint, match=path.name):
            verification.read_files(folder, manifest)
        path.write_bytes(content)
    assert verification.read_files(folder, manifest) == FILES


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    (folder / name).unlink()
    with pytest.raises(DamagedCheckpoint, match=rf"{name}: cannot be read: No such file"):
        verification.read_files(folder, manifest)


def test_a_truncated_file_is_named_with_its_sizes(folder: Path) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    os.truncate(folder / "model", 4999)
    with pytest.raises(DamagedCheckpoint, match="model: found 4999 bytes, expected 5000"):
        verification.read_files(folder, manifest)


def test_a_missing_folder_is_damage_where_its_place_can_be_listed(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verification.read_files(folder, "0" * 64)
    folder.parent.mkdir()
    with pytest.raises(DamagedCheckpoint, match="cannot be read"):
        verification.read_files(folder, "0" * 64)


def test_a_file_in_the_place_of_a_folder_is_damage_and_so_is_a_folder_in_the_place_of_a_file(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_bytes(b"in the way")
    with pytest.raises(DamagedCheckpoint, match="cannot be read"):
        verification.read_files(folder, "0" * 64)
    folder.unlink()
    (folder / MANIFEST).mkdir(parents=True)
    with pytest.raises(DamagedCheckpoint, match="cannot be read"):
        verification.read_files(folder, "0" * 64)


def test_a_whole_checkpoint_other_than_the_committed_one_is_damage(tmp_path: Path) -> None:
    committed = publication.write(tmp_path / "a", "layout/1", FILES)
    publication.write(tmp_path / "b", "layout/1", {**FILES, "model": b"other weights"})
    with pytest.raises(DamagedCheckpoint, match=rf"found SHA-256 .* expected {committed[:16]}"):
        verification.read_files(tmp_path / "b", committed)


def test_a_checkpoint_of_another_format_is_refused_and_is_not_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipway.trainer.checkpoint.disk.manifest.FORMAT", "slipway.checkpoint/9")
    manifest = publication.write(folder, "layout/1", FILES)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"found format slipway\.checkpoint/9, expected slipway\.checkpoint/1"):
        verification.read_files(folder, manifest)


def test_a_second_write_to_the_same_place_fails_and_leaves_the_first(folder: Path) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    with pytest.raises(OSError):
        publication.write(folder, "layout/1", {"model": b"other weights"})
    assert verification.read_files(folder, manifest) == FILES
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_only_the_hidden_folders_of_killed_writers_are_removed(folder: Path) -> None:
    manifest = publication.write(folder, "layout/1", FILES)
    abandoned = folder.parent / ".000000010.000001.0000.k2j1h"
    shutil.copytree(folder, abandoned)
    publication.remove_unpublished(folder.parent, Token(2))
    assert not abandoned.exists()
    assert verification.read_files(folder, manifest) == FILES


def test_without_a_folder_of_checkpoints_nothing_is_removed(tmp_path: Path) -> None:
    publication.remove_unpublished(tmp_path / "absent", Token(2))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with mounted(tmp_path / "disk", "size=256k") as disk:
        yield disk


@pytest.mark.process
def test_a_full_disk_leaves_no_part_of_a_checkpoint_and_the_earlier_ones_whole(small_disk: Path) -> None:
    manifest = publication.write(small_disk / "first", "layout/1", FILES)
    with pytest.raises(OSError, match="No space left"):
        publication.write(small_disk / "second", "layout/1", {"model": bytes(300_000), "progress": b"{}"})
    assert [path.name for path in small_disk.iterdir()] == ["first"]
    assert verification.read_files(small_disk / "first", manifest) == FILES


def test_nothing_in_a_checkpoint_is_ever_unpickled() -> None:
    """Weights may come from anywhere, and a pickle in them would run as code."""
    sources = [path.read_text() for path in Path(publication.__file__).parent.glob("*.py")]
    imports = [line for source in sources for line in source.splitlines() if "import " in line]
    assert not [line for line in imports if "pickle" in line or "joblib" in line]
    calls = re.compile(r"(?<!safetensors\.)torch\.(load|save)\b|allow_pickle|\beval\(|\bexec\(")
    assert not [match.group() for source in sources for match in calls.finditer(source)]

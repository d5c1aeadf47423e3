"""What a disk has forgotten of a dataset is found by reading it again, and mended from where it is whole."""

import os
import shutil
from pathlib import Path

import pytest

from slipway.assets.datasets import garbage, scrub
from slipway.assets.datasets.reading import sources
from slipway.trainer.data import shards
from slipway.trainer.objects.origin import Origin
from slipway.trainer.objects.origins import origin
from tests.assets.datasets.builds import build
from tests.assets.datasets.corpora import make_corpus, recipe_for


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, shards.TextSnapshot]:
    """A durable tier with one snapshot; tests only copy it."""
    root = tmp_path_factory.mktemp("scrubbed")
    with pytest.MonkeyPatch.context() as settled:
        settled.setattr(sources, "SETTLED_SECONDS", -1.0)
        snapshot = build(recipe_for(make_corpus(root / "corpus", files=30), shard_tokens=400), root / "durable")
    return root / "durable", snapshot


@pytest.fixture
def snapshot(template: tuple[Path, shards.TextSnapshot]) -> shards.TextSnapshot:
    return template[1]


@pytest.fixture
def durable(tmp_path: Path, template: tuple[Path, shards.TextSnapshot]) -> Path:
    shutil.copytree(template[0], tmp_path / "backup")
    return shutil.copytree(template[0], tmp_path / "durable")


@pytest.fixture
def files(snapshot: shards.TextSnapshot) -> int:
    """How many files a scrub reads: the shards, the manifest, the documents table, and the tokenizer."""
    return len(snapshot.shards()) + 3


@pytest.fixture
def backup(tmp_path: Path) -> list[Origin]:
    return [origin(tmp_path / "nowhere"), origin(tmp_path / "backup")]


def flip(path: Path) -> None:
    """Change one byte, and neither the size nor the times."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def a_shard(durable: Path, snapshot: shards.TextSnapshot) -> Path:
    return shards.shard_path(durable, snapshot.splits["train"].shards[1])


def test_a_tier_without_damage_stays_as_it_is(durable: Path, files: int):
    before = {path: path.read_bytes() for path in durable.rglob("*") if path.is_file()}
    scrubbed = scrub.scrub(durable, [])
    assert (scrubbed.files, scrubbed.damaged, scrubbed.unread) == (files, (), ())
    assert {path: path.read_bytes() for path in durable.rglob("*") if path.is_file()} == before


def test_a_shard_with_one_wrong_bit_is_mended_from_the_first_place_that_has_it_whole(
    durable: Path, snapshot: shards.TextSnapshot, backup: list[Origin], tmp_path: Path
):
    path = a_shard(durable, snapshot)
    original = path.read_bytes()
    flip(path)
    worse = shutil.copytree(durable, tmp_path / "worse")
    [damage] = scrub.scrub(durable, [origin(worse), *backup]).damaged
    assert (damage.name, damage.mended) == (str(path.relative_to(durable)), str(tmp_path / "backup"))
    assert damage.problem.startswith("found BLAKE3") and damage.snapshots == (snapshot.sha256,)
    assert path.read_bytes() == original


def test_a_damaged_manifest_is_mended_too(durable: Path, snapshot: shards.TextSnapshot, backup: list[Origin]):
    path = shards.manifest_path(durable, snapshot.sha256)
    flip(path)
    [damage] = scrub.scrub(durable, backup).damaged
    assert damage.mended and damage.snapshots == (snapshot.sha256,)
    assert shards.read_manifest(durable, snapshot.sha256) == snapshot


def test_what_no_place_has_is_set_aside_and_told_each_time_until_it_is_there_again(
    durable: Path, snapshot: shards.TextSnapshot, backup: list[Origin]
):
    path = a_shard(durable, snapshot)
    original = path.read_bytes()
    flip(path)
    scrubbed = scrub.scrub(durable, [])
    assert [damage.name for damage in scrubbed.lost] == [str(path.relative_to(durable))]
    assert not path.exists() and path.with_name(garbage.DAMAGED + path.name).exists()
    [again] = scrub.scrub(durable, []).lost
    assert (again.name, again.problem, again.snapshots) == (scrubbed.lost[0].name, scrub.MISSING, (snapshot.sha256,))
    nights = [scrub.scrub(durable, [], part=night, parts=3).lost for night in range(3)]
    assert [damage.name for night in nights for damage in night] == [again.name]
    [mended] = scrub.scrub(durable, backup).damaged
    assert mended.mended and path.read_bytes() == original
    assert scrub.scrub(durable, []).damaged == ()


def test_a_manifest_that_is_gone_is_told_where_a_dataset_points_at_it(durable: Path, snapshot: shards.TextSnapshot):
    shards.manifest_path(durable, snapshot.sha256).unlink()
    [loss] = scrub.scrub(durable, []).lost
    assert (loss.name, loss.datasets) == (f"snapshots/{snapshot.sha256}.json", (snapshot.dataset,))


def test_a_damaged_file_that_no_snapshot_consists_of_is_set_aside_and_no_loss(durable: Path):
    path = durable / "shards" / f"{'0' * 64}.shard"
    path.write_bytes(b"of a build that was killed")
    scrubbed = scrub.scrub(durable, [])
    assert [damage.name for damage in scrubbed.damaged] == [f"shards/{path.name}"] and scrubbed.lost == []
    assert not path.exists()


def test_a_damaged_tokenizer_stays_so_that_no_build_trains_another(durable: Path, snapshot: shards.TextSnapshot):
    path = durable / "tokenizers" / f"{snapshot.tokenizer.sha256}.json"
    flip(path)
    assert [damage.name for damage in scrub.scrub(durable, []).lost] == [f"tokenizers/{path.name}"]
    assert path.exists()


def test_a_file_that_cannot_be_read_is_reported_and_not_touched(durable: Path, snapshot: shards.TextSnapshot):
    path = a_shard(durable, snapshot)
    path.unlink()
    path.mkdir()  # reading it fails as on a broken disk, for root too
    scrubbed = scrub.scrub(durable, [])
    assert scrubbed.damaged == () and scrubbed.unread == (f"shards/{path.name}: Is a directory",)
    assert path.is_dir()


def test_the_parts_of_some_nights_are_all_files_each_once(durable: Path, snapshot: shards.TextSnapshot, files: int):
    nights = [scrub.scrub(durable, [], part=night, parts=3) for night in (19, 20, 21)]
    assert sum(night.files for night in nights) == files
    for path in (a_shard(durable, snapshot), shards.manifest_path(durable, snapshot.sha256)):
        flip(path)
    damages = [scrub.scrub(durable, [], part=night, parts=3).damaged for night in range(3)]
    assert sum(map(len, damages)) == 2


def test_it_tells_how_far_it_is_and_how_long_it_takes(durable: Path, files: int):
    lines: list[str] = []
    scrub.scrub(durable, [], lambda progress: lines.append(str(progress)))
    assert len(lines) == files
    assert f"(100%), {files} of {files} shards" in lines[-1] and lines[-1].endswith("0 s left")

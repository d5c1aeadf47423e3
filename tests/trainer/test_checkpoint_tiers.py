"""Tiers of checkpoints (C3, C4, C6): copies verified on their way, whole or not there, and faults that are told."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import mounted
from tests.s3 import Server
from trainer import digest, fence, patience, uploads
from trainer.checkpoint import format, replicas, tiers
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.format import MANIFEST
from trainer.checkpoint.tiers import FolderTier, ObjectTier, Tier, Unavailable, fetch, replicate
from trainer.fence import Commit, Token
from trainer.objects import Bucket, Conflict

FILES = {"model": random.Random(1).randbytes(3 << 20), "progress.json": b'{"step": 5}', "empty": b""}
NAME = "checkpoints/tiny/000000005.000001.0000"
COMMIT = Commit(5, Token(1), NAME, "")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, str]:
    """A checkpoint in a folder, and its manifest's SHA-256."""
    folder = tmp_path / "saved" / NAME
    return folder, format.write(folder, "layout/1", FILES)


@pytest.fixture(params=["folder", "bucket"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    if request.param == "folder":
        (tmp_path / "tier").mkdir()
        return FolderTier(tmp_path / "tier")
    server: Server = request.getfixturevalue("s3")
    return ObjectTier(str(server.new_bucket()))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 2 MiB; skips where mounting is not allowed."""
    with mounted(tmp_path / "small", "size=2m") as disk:
        yield disk


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_copy_reads_back_as_it_was_saved(saved: tuple[Path, str], tier: Tier, tmp_path: Path):
    folder, manifest = saved
    copied = replicate(folder, tier, NAME, manifest)
    assert copied == sum(path.stat().st_size for path in folder.iterdir())
    fetch(tier, NAME, manifest, tmp_path / "back" / "there")
    assert format.read(tmp_path / "back" / "there", manifest) == FILES


def test_a_second_copy_changes_nothing(saved: tuple[Path, str], tier: Tier):
    folder, manifest = saved
    for _ in range(2):
        replicate(folder, tier, NAME, manifest)
    assert list(tier.folders("checkpoints/tiny")) == [NAME]


def test_without_its_manifest_a_copy_is_not_there(saved: tuple[Path, str], tier: Tier, tmp_path: Path):
    folder, manifest = saved
    for name, expected in format.read_manifest(folder, manifest).files.items():
        tier.put(NAME, name, iter([FILES[name]]), expected)
    assert not tier.holds(NAME)
    assert tier.folders("checkpoints/tiny") == {}
    with pytest.raises(Damaged, match=MANIFEST):
        fetch(tier, NAME, manifest, tmp_path / "back")
    tier.finish(NAME, (folder / MANIFEST).read_bytes())
    assert tier.holds(NAME)


def test_a_source_that_is_damaged_leaves_no_copy(saved: tuple[Path, str], tier: Tier):
    folder, manifest = saved
    flip(folder / "model")
    with pytest.raises(Damaged, match=r"model: found BLAKE3 .*, expected "):
        replicate(folder, tier, NAME, manifest)
    assert not tier.holds(NAME)


def test_a_copy_that_was_broken_off_is_made_whole_by_the_next_one(saved: tuple[Path, str], tier: Tier, tmp_path: Path):
    folder, manifest = saved
    whole = (folder / "model").read_bytes()
    flip(folder / "model")
    with pytest.raises(Damaged):
        replicate(folder, tier, NAME, manifest)
    (folder / "model").write_bytes(whole)
    replicate(folder, tier, NAME, manifest)
    fetch(tier, NAME, manifest, tmp_path / "back")
    assert format.read(tmp_path / "back", manifest) == FILES


def test_what_was_removed_is_gone_and_may_be_removed_again(saved: tuple[Path, str], tier: Tier):
    folder, manifest = saved
    replicate(folder, tier, NAME, manifest)
    for _ in range(2):
        tier.remove(NAME)
        assert not tier.holds(NAME)


def test_a_fetched_copy_that_is_damaged_is_named_and_leaves_nothing(saved: tuple[Path, str], tmp_path: Path):
    folder, manifest = saved
    flip(folder / "model")
    with pytest.raises(Damaged, match=f"{NAME}/model: found BLAKE3"):
        fetch(FolderTier(tmp_path / "saved"), NAME, manifest, tmp_path / "back" / "there")
    assert list((tmp_path / "back").iterdir()) == []


def test_some_files_alone_can_be_fetched(saved: tuple[Path, str], tier: Tier, tmp_path: Path):
    folder, manifest = saved
    replicate(folder, tier, NAME, manifest)
    fetch(tier, NAME, manifest, tmp_path / "back", ["progress.json"])
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == [MANIFEST, "progress.json"]


def test_a_full_tier_is_unavailable_and_what_it_holds_stays_good(saved: tuple[Path, str], small_disk: Path):
    folder, manifest = saved
    small, tier = folder.with_name("small"), FolderTier(small_disk)
    first = format.write(small, "layout/1", {"model": b"small"})
    replicate(small, tier, "checkpoints/tiny/first", first)
    with pytest.raises(Unavailable, match=r"\.000000005.*model: No space left on device"):
        replicate(folder, tier, NAME, manifest)
    assert list(tier.folders("checkpoints/tiny")) == ["checkpoints/tiny/first"]
    assert format.read(small_disk / "checkpoints/tiny/first", first) == {"model": b"small"}
    tier.remove("checkpoints/tiny/first")


def test_a_read_only_tier_is_unavailable(saved: tuple[Path, str], small_disk: Path):
    folder, manifest = saved
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(Unavailable, match="Read-only file system"):
        replicate(folder, FolderTier(small_disk), NAME, manifest)


def test_a_folder_that_is_not_mounted_is_unavailable_and_not_damaged(tmp_path: Path):
    with pytest.raises(Unavailable, match="No such file"):
        fetch(FolderTier(tmp_path / "not mounted"), NAME, "0" * 64, tmp_path / "back")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.2)


@pytest.mark.slow
def test_an_object_store_that_is_down_is_unavailable_and_takes_the_copy_when_it_is_back(
    saved: tuple[Path, str], s3: Server, impatient: None
):
    folder, manifest = saved
    tier = ObjectTier(str(s3.new_bucket()))
    s3.kill()
    try:
        with pytest.raises(Unavailable, match="no answer"):
            replicate(folder, tier, NAME, manifest)
    finally:
        s3.start()
    replicate(folder, ObjectTier(str(tier)), NAME, manifest)
    assert tier.holds(NAME)


def test_an_object_is_created_once(s3: Server):
    bucket = s3.new_bucket()
    create(bucket, b"first")
    create(bucket, b"first")
    with pytest.raises(Conflict, match="found another object, expected none"):
        create(bucket, b"second")
    assert bucket.open("object").read() == b"first"


def test_a_large_object_goes_in_parts_and_is_there_whole_or_not_at_all(s3: Server):
    bucket, data = s3.new_bucket(), random.Random(2).randbytes(2 * uploads.PART + 5)

    def broken() -> Iterator[bytes]:
        yield data[: uploads.PART + 9]
        raise Damaged("the source broke off")

    with pytest.raises(Damaged):
        uploads.create(bucket, "object", broken(), len(data), "0" * 64)
    assert list(bucket.objects()) == []
    assert "Uploads" not in bucket.call("list_multipart_uploads")
    create(bucket, data)
    assert bucket.open("object").read() == data
    with pytest.raises(Conflict):
        create(bucket, data[::-1])


def create(bucket: Bucket, data: bytes) -> None:
    uploads.create(bucket, "object", iter([data]), len(data), digest.of_bytes(data))


def test_a_url_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"gs://bucket: found gs://, expected a folder or s3://bucket/prefix"):
        tiers.tier("gs://bucket")


def test_a_commit_lies_where_it_was_written_and_where_copies_are_on_record(tmp_path: Path):
    assert replicas.holders(tmp_path, [COMMIT]) == {COMMIT.name: ("durable",)}
    assert replicas.record(tmp_path, COMMIT, "backup", 7)
    assert not replicas.record(tmp_path, COMMIT, "backup", 7)
    assert replicas.holders(tmp_path, [COMMIT]) == {COMMIT.name: ("durable", "backup")}


def test_a_copy_that_was_withdrawn_counts_no_more_and_the_others_do(tmp_path: Path):
    replicas.record(tmp_path, COMMIT, "backup", 7)
    assert replicas.withdraw(tmp_path, COMMIT, "durable", "not one of the last 5")
    assert not replicas.withdraw(tmp_path, COMMIT, "durable", "not one of the last 5")
    assert replicas.holders(tmp_path, [COMMIT]) == {COMMIT.name: ("backup",)}
    assert replicas.withdrawn(tmp_path, "durable") == {COMMIT.name: False}


def test_a_commit_is_set_aside_when_its_last_copy_is_damaged(tmp_path: Path):
    fence.claim(tmp_path, COMMIT.token, nodes=(), cause="a test", by="test")
    fence.commit(tmp_path, COMMIT)
    replicas.record(tmp_path, COMMIT, "backup", 7)
    assert not replicas.set_aside(tmp_path, COMMIT, "durable", "a flipped bit")
    assert fence.commits(tmp_path) == [COMMIT]
    assert replicas.set_aside(tmp_path, COMMIT, "backup", "another one")
    assert fence.commits(tmp_path) == []
    assert fence.set_aside_reasons(tmp_path) == {COMMIT.name: "another one"}
    assert replicas.withdrawn(tmp_path, "backup") == {COMMIT.name: True}


def test_a_commit_that_was_pruned_counts_no_more(tmp_path: Path):
    fence.claim(tmp_path, COMMIT.token, nodes=(), cause="a test", by="test")
    fence.commit(tmp_path, COMMIT)
    assert fence.prune(tmp_path, COMMIT, "no tier keeps it")
    assert fence.commits(tmp_path) == []
    assert fence.pruned(tmp_path) == [COMMIT.name]
    fence.claim(tmp_path, Token(2), nodes=(), cause="a test", by="test")
    assert fence.commits(tmp_path) == []

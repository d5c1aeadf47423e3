"""Tiers of checkpoints: copies are verified on their way, visible only whole, and faults are reported."""

import contextlib
import os
import random
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import digest, patience
from slipway.trainer.base.verify import Measured
from slipway.trainer.checkpoint.disk import publication, verification
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.checkpoint.tiers.copying import fetch, replicate, tier_at
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.object_tier import ObjectTier
from slipway.trainer.checkpoint.tiers.tier import Tier, TierUnavailable
from slipway.trainer.objects import uploads
from slipway.trainer.objects.bucket import AlreadyThere, Bucket
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit, Token
from tests.disks import mounted
from tests.s3 import Server, point_at

FILES = {"model": random.Random(1).randbytes(3 << 20), "progress.json": b'{"step": 5}', "empty": b""}
NAME = "checkpoints/tiny/000000005.000001.0000"
TIER_VARIABLES = ("SLIPWAY_TEST_FOLDER", "SLIPWAY_TEST_BUCKET")
"""Variables that name tiers of others to test as well: a folder, such as on Lustre, and s3://bucket/prefix, such as of
MinIO, with its address and credentials in the variables of AWS."""
ON_CEPH = [pytest.param(name, marks=pytest.mark.nightly) for name in ("cephfs", "gateway")]
COMMIT = Commit(5, Token(1), NAME, "")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, str]:
    """A checkpoint in a folder, and the SHA-256 of its manifest."""
    folder = tmp_path / "saved" / NAME
    return folder, publication.write(folder, "layout/1", FILES)


@pytest.fixture(params=["folder", "seaweedfs", *ON_CEPH, *(name for name in TIER_VARIABLES if os.environ.get(name))])
def tier(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tier]:
    if request.param in TIER_VARIABLES:
        with given_tier(os.environ[request.param]) as external_tier:
            yield external_tier
    elif request.param == "folder":
        (tmp_path / "tier").mkdir()
        yield FolderTier(tmp_path / "tier")
    elif request.param == "cephfs":
        with given_tier(str(request.getfixturevalue("cephfs"))) as external_tier:
            yield external_tier
    else:
        server: Server = request.getfixturevalue(request.param)
        point_at(server, monkeypatch)
        yield ObjectTier(str(server.new_bucket()))


@contextlib.contextmanager
def given_tier(where: str) -> Iterator[Tier]:
    """A tier of its own below a place that somebody names; what the test put there is removed."""
    below = f"{where.rstrip('/')}/test-{uuid.uuid4().hex[:12]}"
    if "://" not in below:
        Path(below).mkdir(parents=True)
    tier = tier_at(below)
    yield tier
    for name in [*tier.folders("checkpoints/tiny"), *tier.unfinished("checkpoints/tiny")]:
        tier.remove(name)
    if "://" not in below:
        shutil.rmtree(below)


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
    assert verification.read_files(tmp_path / "back" / "there", manifest) == FILES


def test_a_second_copy_changes_nothing(saved: tuple[Path, str], tier: Tier):
    folder, manifest = saved
    for _ in range(2):
        replicate(folder, tier, NAME, manifest)
    assert list(tier.folders("checkpoints/tiny")) == [NAME]


def test_a_copy_is_visible_only_with_its_manifest(saved: tuple[Path, str], tier: Tier, tmp_path: Path):
    folder, manifest = saved
    for name, expected in verification.read_manifest(folder, manifest).files.items():
        tier.put(NAME, name, iter([FILES[name]]), expected)
    assert not tier.holds(NAME) and tier.unfinished("checkpoints/tiny") == [NAME]
    assert tier.folders("checkpoints/tiny") == {}
    with pytest.raises(DamagedCheckpoint, match=MANIFEST):
        fetch(tier, NAME, manifest, tmp_path / "back")
    tier.finish(NAME, (folder / MANIFEST).read_bytes())
    assert tier.holds(NAME)


def test_a_copy_that_lost_a_file_on_its_way_does_not_become_visible(saved: tuple[Path, str], tmp_path: Path):
    (folder, manifest), tier = saved, FolderTier(tmp_path / "tier")
    (tmp_path / "tier").mkdir()
    for name, expected in verification.read_manifest(folder, manifest).files.items():
        tier.put(NAME, name, iter([FILES[name]]), expected)
    (lost,) = (tmp_path / "tier" / NAME).parent.glob(".*/model")
    lost.unlink()
    with pytest.raises(TierUnavailable, match="not whole: model is missing"):
        tier.finish(NAME, (folder / MANIFEST).read_bytes())
    assert not tier.holds(NAME)


def test_a_visible_folder_that_is_not_whole_is_replaced_by_the_next_copy(saved: tuple[Path, str], tmp_path: Path):
    (folder, manifest), tier = saved, FolderTier(tmp_path / "tier")
    (tmp_path / "tier").mkdir()
    replicate(folder, tier, NAME, manifest)
    (tmp_path / "tier" / NAME / "model").unlink()
    replicate(folder, tier, NAME, manifest)
    assert verification.read_files(tmp_path / "tier" / NAME, manifest) == FILES


def test_a_source_that_is_damaged_leaves_no_copy(saved: tuple[Path, str], tier: Tier):
    folder, manifest = saved
    flip(folder / "model")
    with pytest.raises(DamagedCheckpoint, match=r"model: found BLAKE3 .*, expected "):
        replicate(folder, tier, NAME, manifest)
    assert not tier.holds(NAME)


def test_an_interrupted_copy_is_completed_by_the_next_one(saved: tuple[Path, str], tier: Tier, tmp_path: Path):
    folder, manifest = saved
    content = (folder / "model").read_bytes()
    flip(folder / "model")
    with pytest.raises(DamagedCheckpoint):
        replicate(folder, tier, NAME, manifest)
    (folder / "model").write_bytes(content)
    replicate(folder, tier, NAME, manifest)
    fetch(tier, NAME, manifest, tmp_path / "back")
    assert verification.read_files(tmp_path / "back", manifest) == FILES


def test_a_removed_checkpoint_may_be_removed_again(saved: tuple[Path, str], tier: Tier):
    folder, manifest = saved
    replicate(folder, tier, NAME, manifest)
    for _ in range(2):
        tier.remove(NAME)
        assert not tier.holds(NAME)


def test_a_fetched_copy_that_is_damaged_is_named_and_leaves_nothing(saved: tuple[Path, str], tmp_path: Path):
    folder, manifest = saved
    flip(folder / "model")
    with pytest.raises(DamagedCheckpoint, match=f"{NAME}/model: found BLAKE3"):
        fetch(FolderTier(tmp_path / "saved"), NAME, manifest, tmp_path / "back" / "there")
    assert list((tmp_path / "back").iterdir()) == []


def test_a_full_tier_is_unavailable_and_its_checkpoints_stay_whole(saved: tuple[Path, str], small_disk: Path):
    folder, manifest = saved
    small, tier = folder.with_name("small"), FolderTier(small_disk)
    first = publication.write(small, "layout/1", {"model": b"small"})
    replicate(small, tier, "checkpoints/tiny/first", first)
    with pytest.raises(TierUnavailable, match=r"\.000000005.*model: No space left on device"):
        replicate(folder, tier, NAME, manifest)
    assert list(tier.folders("checkpoints/tiny")) == ["checkpoints/tiny/first"]
    assert verification.read_files(small_disk / "checkpoints/tiny/first", first) == {"model": b"small"}
    tier.remove("checkpoints/tiny/first")


def test_a_read_only_tier_is_unavailable(saved: tuple[Path, str], small_disk: Path):
    folder, manifest = saved
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(TierUnavailable, match="Read-only file system"):
        replicate(folder, FolderTier(small_disk), NAME, manifest)


def test_a_folder_that_is_not_mounted_is_unavailable_and_not_damaged(tmp_path: Path):
    with pytest.raises(TierUnavailable, match="No such file"):
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
        with pytest.raises(TierUnavailable, match="no answer"):
            replicate(folder, tier, NAME, manifest)
    finally:
        s3.start()
    replicate(folder, ObjectTier(str(tier)), NAME, manifest)
    assert tier.holds(NAME)


def test_an_object_is_created_once(s3: Server):
    bucket = s3.new_bucket()
    create(bucket, b"first")
    create(bucket, b"first")
    with pytest.raises(AlreadyThere, match="found another object"):
        create(bucket, b"second")
    assert bucket.open("object").read() == b"first"


def test_a_large_object_is_uploaded_in_parts_and_visible_whole_or_not_at_all(s3: Server):
    bucket, data = s3.new_bucket(), random.Random(2).randbytes(2 * uploads.PART + 5)

    def broken() -> Iterator[bytes]:
        yield data[: uploads.PART + 9]
        raise DamagedCheckpoint("the source broke off")

    with pytest.raises(DamagedCheckpoint):
        uploads.create(bucket, "object", broken(), Measured(len(data), "0" * 64))
    assert list(bucket.objects()) == []
    assert "Uploads" not in bucket.call("list_multipart_uploads")
    create(bucket, data)
    assert bucket.open("object").read() == data
    with pytest.raises(AlreadyThere):
        create(bucket, data[::-1])


def test_a_large_object_leaves_the_one_that_another_writer_created_meanwhile(s3: Server):
    bucket, data = s3.new_bucket(), random.Random(2).randbytes(uploads.PART + 5)

    def slow() -> Iterator[bytes]:
        yield data[: uploads.PART]
        create(bucket, b"first")
        yield data[uploads.PART :]

    with pytest.raises(AlreadyThere, match="found another object"):
        uploads.create(bucket, "object", slow(), Measured(len(data), digest.of_bytes(data)))
    assert bucket.open("object").read() == b"first"
    assert "Uploads" not in bucket.call("list_multipart_uploads")


def create(bucket: Bucket, data: bytes) -> None:
    uploads.create(bucket, "object", iter([data]), Measured(len(data), digest.of_bytes(data)))


def test_a_url_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"gs://bucket: found gs://, expected a folder or s3://bucket/prefix"):
        copying.tier_at("gs://bucket")


def test_a_commit_is_on_its_first_tier_and_on_those_with_a_record_of_a_copy(tmp_path: Path):
    assert replicas.holders(tmp_path, [COMMIT]) == {COMMIT.name: ("durable",)}
    assert replicas.record(tmp_path, COMMIT, "backup", 7)
    assert not replicas.record(tmp_path, COMMIT, "backup", 7)
    assert replicas.holders(tmp_path, [COMMIT]) == {COMMIT.name: ("durable", "backup")}


def test_a_withdrawn_copy_no_longer_counts_and_the_others_do(tmp_path: Path):
    replicas.record(tmp_path, COMMIT, "backup", 7)
    assert replicas.withdraw(tmp_path, COMMIT, "durable", "not one of the last 5")
    assert not replicas.withdraw(tmp_path, COMMIT, "durable", "not one of the last 5")
    assert replicas.holders(tmp_path, [COMMIT]) == {COMMIT.name: ("backup",)}
    assert replicas.withdrawn_copies(tmp_path, "durable") == {COMMIT.name: False}


def test_a_commit_is_set_aside_when_its_last_copy_is_damaged(tmp_path: Path):
    fence.claim(tmp_path, COMMIT.token, nodes=(), cause="a test", by="test")
    fence.commit(tmp_path, COMMIT)
    replicas.record(tmp_path, COMMIT, "backup", 7)
    assert not replicas.set_aside(tmp_path, COMMIT, {"durable": "a flipped bit"})
    assert fence.commits(tmp_path) == [COMMIT]
    assert replicas.set_aside(tmp_path, COMMIT, {"backup": "another one"})
    assert fence.commits(tmp_path) == []
    assert fence.set_aside_reasons(tmp_path) == {COMMIT.name: "another one"}
    assert replicas.withdrawn_copies(tmp_path, "backup") == {COMMIT.name: True}


def test_a_pruned_commit_no_longer_counts(tmp_path: Path):
    fence.claim(tmp_path, COMMIT.token, nodes=(), cause="a test", by="test")
    fence.commit(tmp_path, COMMIT)
    assert fence.prune(tmp_path, COMMIT, "no tier keeps it")
    assert fence.commits(tmp_path) == []
    assert fence.pruned(tmp_path) == [COMMIT.name]
    fence.claim(tmp_path, Token(2), nodes=(), cause="a test", by="test")
    assert fence.commits(tmp_path) == []


def test_a_folder_whose_disk_is_not_mounted_is_away_and_is_never_made(saved: tuple[Path, str], tmp_path: Path):
    """Else a backup disk that is not mounted after a restart would be a folder of the disk below, and fill it."""
    (folder, manifest), tier = saved, FolderTier(tmp_path / "mount" / "backup")
    (tmp_path / "mount").mkdir()
    data = (folder / MANIFEST).read_bytes()
    [name, expected], *_ = verification.read_manifest(folder, manifest).files.items()
    acts: dict[str, Callable[[], object]] = {
        "put": lambda: tier.put(NAME, name, iter([FILES[name]]), expected),
        "put_shared": lambda: tier.put_shared(NAME, name, iter([FILES[name]])),
        "lacks": lambda: tier.lacks(NAME, {name: expected}),
        "amend": lambda: tier.amend(NAME, "keys", b"x"),
        "finish": lambda: tier.finish(NAME, data),
        "read": lambda: list(tier.read(NAME, name)),
        "holds": lambda: tier.holds(NAME),
        "remove": lambda: tier.remove(NAME),
        "folders": lambda: tier.folders("checkpoints/tiny"),
        "replicate": lambda: replicate(folder, tier, NAME, manifest),
    }
    for does, act in acts.items():
        with pytest.raises(TierUnavailable, match="No such file"):
            act()
        assert list((tmp_path / "mount").iterdir()) == [], does
    (tmp_path / "mount" / "backup").mkdir()
    assert not tier.holds(NAME) and tier.folders("checkpoints/tiny") == {}, "what is there and empty holds nothing"
    replicate(folder, tier, NAME, manifest)
    assert tier.holds(NAME)

"""CephFS as the durable tier, on a real one: two clients, which are two hosts to it, and a folder with a quota.

What a tier does there is in `tests.trainer.checkpoint.test_tiers`, which runs on it too.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import atomic, file_system
from slipway.trainer.checkpoint.disk import publication, verification
from slipway.trainer.checkpoint.tiers.copying import replicate
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.record import fence
from slipway.trainer.record.claims import Superseded, Token
from tests.ceph import Ceph

pytestmark = pytest.mark.nightly
SMALL, LARGE = "checkpoints/tiny/small", "checkpoints/tiny/large"


@pytest.fixture(scope="module")
def other(ceph: Ceph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same file system as `cephfs`, as another host sees it."""
    with ceph.mounted(tmp_path_factory.mktemp("other") / "other") as folder:
        yield folder


def test_it_can_do_everything_and_its_locks_hold_on_all_hosts(cephfs: Path):
    assert [ability.name for ability in file_system.abilities(cephfs) if ability.fault] == []
    assert file_system.require(cephfs, "durable") == "fuse.ceph-fuse; locks hold on all hosts"


def test_a_lock_of_one_host_keeps_the_other_off(cephfs: Path, other: Path):
    (cephfs / "locked").write_bytes(b"")
    with (cephfs / "locked").open() as first_host, (other / "locked").open() as second_host:
        fcntl.flock(first_host, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second_host, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(first_host, fcntl.LOCK_UN)
        fcntl.flock(second_host, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_of_two_hosts_one_creates_a_record_and_both_read_it(cephfs: Path, other: Path):
    assert atomic.create_only(cephfs / "record", b"mine")
    assert not atomic.create_only(other / "record", b"theirs")
    assert (other / "record").read_bytes() == b"mine"


def test_a_claim_of_one_host_holds_for_the_other(cephfs: Path, other: Path):
    for root in (cephfs, other):
        (root / "run").mkdir(exist_ok=True)
    fence.claim(cephfs / "run", Token(1), nodes=(), cause="a test", by="test")
    fence.claim(other / "run", Token(2), nodes=(), cause="a test", by="test")
    with pytest.raises(Superseded):
        fence.commit(cephfs / "run", fence.Commit(5, Token(1), SMALL, ""))


def test_a_checkpoint_that_one_host_shows_is_whole_for_the_other(cephfs: Path, other: Path):
    folder = cephfs / SMALL
    manifest = publication.write(folder, "layout/1", {"model": bytes(5 << 20)})
    assert verification.read_files(other / SMALL, manifest) == {"model": bytes(5 << 20)}


def test_a_folder_whose_quota_is_used_up_is_a_full_tier(cephfs: Path, tmp_path: Path):
    (cephfs / "quota").mkdir()
    os.setxattr(cephfs / "quota", "ceph.quota.max_bytes", str(8 << 20).encode())
    tier = FolderTier(cephfs / "quota")
    small = publication.write(tmp_path / "small", "layout/1", {"model": b"small"})
    large = publication.write(tmp_path / "large", "layout/1", {"model": bytes(64 << 20)})
    replicate(tmp_path / "small", tier, SMALL, small)
    with pytest.raises(TierUnavailable, match=r"Disk quota exceeded|No space left on device"):
        replicate(tmp_path / "large", tier, LARGE, large)
    assert list(tier.folders("checkpoints/tiny")) == [SMALL]
    assert verification.read_files(cephfs / "quota" / SMALL, small) == {"model": b"small"}

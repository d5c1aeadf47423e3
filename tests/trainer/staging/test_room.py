"""Room on a full disk: what no lease holds goes at once, and what a lease holds stays."""

import dataclasses
import errno
import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.trainer.data import shards
from slipway.trainer.staging import leases, retention, stage
from tests.resources.trainings.lab import at_once
from tests.trainer.counting import snapshot_of

LENGTH = 4000
"""Tokens of a shard: 16 kB."""


def snapshot(durable: Path, count: int, begin: int) -> shards.TextSnapshot:
    """A snapshot of `count` shards, none of which another `begin` has."""
    text_snapshot = snapshot_of(durable, *(LENGTH + begin + number for number in range(count)))
    text_snapshot = dataclasses.replace(text_snapshot, dataset=f"counting from {begin}")
    shards.write_manifest(durable, text_snapshot)
    return text_snapshot


@pytest.fixture
def old(durable: Path, small_disk: Path) -> shards.TextSnapshot:
    """A snapshot of two shards that is staged on the small disk, where a third one does not fit."""
    text_snapshot = snapshot(durable, 2, 0)
    stage.stage(text_snapshot.sha256, durable, small_disk)
    return text_snapshot


def test_a_staging_that_finds_the_disk_full_removes_what_no_lease_holds(
    old: shards.TextSnapshot, durable: Path, small_disk: Path
) -> None:
    new = snapshot(durable, 2, 100)
    stage.stage(new.sha256, durable, small_disk)
    assert stage.is_staged(new.sha256, small_disk) and not stage.is_staged(old.sha256, small_disk)


def test_what_a_lease_holds_stays_and_the_staging_fails_with_the_file(
    old: shards.TextSnapshot, durable: Path, small_disk: Path
) -> None:
    new = snapshot(durable, 2, 100)
    with leases.hold(small_disk, old.sha256), pytest.raises(OSError, match=r"No space left on device.*shard"):
        stage.stage(new.sha256, durable, small_disk)
    assert stage.is_staged(old.sha256, small_disk)


def test_a_shard_that_a_window_holds_stays_when_its_snapshot_goes(old: shards.TextSnapshot, small_disk: Path) -> None:
    leased, other = old.shards()
    lease = leases.ShardLease(small_disk, [leased.blake3])
    assert retention.make_room(small_disk, 60_000) == other.bytes
    assert shards.shard_path(small_disk, leased).exists()
    retention.retain(small_disk, gigabytes=0, days=0)
    assert shards.shard_path(small_disk, leased).exists()
    lease.release()
    assert retention.evict(small_disk, [leased.blake3]) == leased.bytes


def test_a_window_can_let_go_of_shards_while_the_disk_is_full(old: shards.TextSnapshot, small_disk: Path) -> None:
    leased, other = old.shards()
    lease = leases.ShardLease(small_disk, [leased.blake3, other.blake3])
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filling").write_bytes(bytes(2**20))
    lease.hold([leased.blake3])
    assert retention.evict(small_disk, [leased.blake3, other.blake3]) == other.bytes


def test_the_room_for_a_snapshot_counts_what_is_free_its_own_shards_and_what_no_lease_holds(
    old: shards.TextSnapshot, small_disk: Path
) -> None:
    own = {shard.blake3 for shard in old.shards()}
    size = sum(shard.bytes for shard in old.shards())
    free = retention.room(small_disk, own) - size
    assert retention.room(small_disk, ()) == free + size
    with leases.hold(small_disk, old.sha256):
        assert retention.room(small_disk, own) == free + size
        assert retention.room(small_disk, ()) == free


def test_of_writers_that_find_the_disk_full_at_one_moment_each_gets_room(
    old: shards.TextSnapshot, durable: Path, small_disk: Path
) -> None:
    """The first one's removal makes room for both, so that the second one finds nothing left to remove."""
    barrier = threading.Barrier(2, timeout=30)

    def writer(name: str) -> Callable[[], None]:
        attempts = itertools.count()

        def write() -> None:
            if next(attempts) == 0:
                barrier.wait()
                raise OSError(errno.ENOSPC, "No space left on device")
            (small_disk / name).write_bytes(bytes(16_000))

        return lambda: retention.in_room(small_disk, 16_000, write)

    assert at_once(writer("one"), writer("two")) == [None, None]
    assert not stage.is_staged(old.sha256, small_disk)


def test_a_write_for_which_there_is_no_room_at_all_is_tried_no_more(small_disk: Path) -> None:
    attempts: list[None] = []

    def write() -> None:
        attempts.append(None)
        (small_disk / "too large").write_bytes(bytes(70_000))

    with pytest.raises(OSError, match="No space left"):
        retention.in_room(small_disk, 70_000, write)
    assert len(attempts) == 2

"""Staging: what is on the NVMe is whole and verified, and staging again costs nothing."""

import json
import os
import re
import uuid
from pathlib import Path

import pytest

from slipway.trainer.base import atomic, digest, verify
from slipway.trainer.base.progress import CopyProgress, every
from slipway.trainer.data import shards
from slipway.trainer.staging.nvme import boot
from slipway.trainer.staging.stage import Staged, bring, bring_manifest, is_staged, stage
from tests.assets.datasets.snapshots import make_snapshot
from tests.trainer.staging.folders import (
    DAMAGES,
    assert_nothing_wrong_is_visible,
    assert_whole,
    flip_a_bit,
    partial_copies,
    staging_process,
)

pytestmark = pytest.mark.pure


def test_staging_brings_the_manifest_and_every_shard(snapshot, durable, nvme):
    staged = stage(snapshot.sha256, durable, nvme)
    size = sum(shard.bytes for shard in snapshot.shards())
    assert staged == Staged(4, size, 4, size, staged.seconds)
    assert_whole(snapshot, nvme)
    assert is_staged(snapshot.sha256, nvme)


def test_nothing_is_staged_on_an_empty_node(snapshot, nvme):
    assert not is_staged(snapshot.sha256, nvme)


def test_a_second_staging_copies_nothing_and_does_not_need_the_durable_tier(snapshot, durable, nvme):
    first = stage(snapshot.sha256, durable, nvme)
    durable.rename(durable.with_name("away"))
    second = stage(snapshot.sha256, durable, nvme)
    assert second == Staged(first.shards, first.bytes, 0, 0, second.seconds)


def test_one_shard_can_be_brought_by_itself_and_staging_finds_it(snapshot, durable, nvme):
    shard = snapshot.shards()[2]
    bring_manifest(snapshot.sha256, durable, nvme)
    for _ in range(2):
        bring(shard, durable, nvme)
        assert verify.measure(shards.shard_path(nvme, shard)).blake3 == shard.blake3
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 3


def test_progress_ends_at_the_total(snapshot, durable, nvme):
    reports: list[CopyProgress] = []
    staged = stage(snapshot.sha256, durable, nvme, reports.append)
    last = reports[-1]
    assert (last.bytes, last.total_bytes, last.files, last.total_files) == (staged.bytes, staged.bytes, 4, 4)
    assert last.rate > 0 and last.seconds_left == 0


def test_progress_shows_bytes_files_rate_and_time_left():
    text = str(CopyProgress(bytes=int(2e9), total_bytes=int(8e9), files=3, total_files=12, rate=5e8))
    assert text == "2.00 of 8.00 GB (25%), 3 of 12 shards, 0.50 GB/s, 12 s left"


def test_progress_is_printed_at_intervals_and_at_the_end():
    byte_counts: list[int] = []
    report = every(3600, lambda progress: byte_counts.append(progress.bytes))
    for count in range(11):
        report(CopyProgress(count, 10, count, 10, 1.0))
    assert byte_counts == [10]


@pytest.mark.parametrize("damage", DAMAGES[:4])
def test_a_damaged_shard_on_the_nvme_is_noticed_and_it_alone_is_copied_again(snapshot, durable, nvme, damage):
    stage(snapshot.sha256, durable, nvme)
    damage(shards.shard_path(nvme, snapshot.shards()[1]))
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 1
    assert_whole(snapshot, nvme)


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"shards": 7}', b"\xff"])
def test_without_a_good_marker_shards_are_kept_and_it_is_made_again(snapshot, durable, nvme, content):
    stage(snapshot.sha256, durable, nvme)
    marker = nvme / "staged" / f"{snapshot.sha256}.json"
    marker.unlink()
    if content is not None:
        marker.write_bytes(content)
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 0
    assert is_staged(snapshot.sha256, nvme)


def reboot(nvme: Path) -> None:
    """Leave the folder as another boot of the machine would have left it."""
    earlier = str(uuid.uuid4())
    (nvme / "verified" / f"{boot()}.journal").rename(nvme / "verified" / f"{earlier}.journal")
    for marker in (nvme / "staged").iterdir():
        atomic.replace(marker, marker.read_bytes().replace(boot().encode(), earlier.encode()))


def test_after_a_reboot_every_shard_is_hashed_once_more_and_only_what_was_lost_is_copied(snapshot, durable, nvme):
    stage(snapshot.sha256, durable, nvme)
    lost = shards.shard_path(nvme, snapshot.shards()[0])
    stat = lost.stat()
    lost.write_bytes(bytes(stat.st_size))
    reboot(nvme)
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 1
    assert_whole(snapshot, nvme)
    assert is_staged(snapshot.sha256, nvme)


@pytest.mark.parametrize("torn", [b"", b"\n", b'{"shard": "ab', bytes(100)])
def test_a_torn_line_in_the_journal_costs_one_more_hash(snapshot, durable, nvme, torn):
    stage(snapshot.sha256, durable, nvme)
    verification_journal = nvme / "verified" / f"{boot()}.journal"
    lines = verification_journal.read_bytes().splitlines(keepends=True)
    verification_journal.write_bytes(b"".join(lines[:-1]) + torn)
    assert not is_staged(snapshot.sha256, nvme)
    for _ in range(2):
        assert stage(snapshot.sha256, durable, nvme).copied_shards == 0
    assert is_staged(snapshot.sha256, nvme)


def test_a_damaged_manifest_on_the_nvme_is_replaced(snapshot, durable, nvme):
    stage(snapshot.sha256, durable, nvme)
    flip_a_bit(shards.manifest_path(nvme, snapshot.sha256))
    assert not is_staged(snapshot.sha256, nvme)
    stage(snapshot.sha256, durable, nvme)
    assert_whole(snapshot, nvme)


def test_shards_that_two_snapshots_share_are_copied_once(snapshot, durable, nvme):
    larger = make_snapshot(durable, shard_count=5)
    common = {shard.blake3 for shard in snapshot.shards()} & {shard.blake3 for shard in larger.shards()}
    stage(snapshot.sha256, durable, nvme)
    assert len(common) >= 3
    assert stage(larger.sha256, durable, nvme).copied_shards == 6 - len(common)


def test_an_unknown_snapshot_leaves_no_trace(durable, nvme):
    with pytest.raises(ValueError, match="there is no such snapshot") as error:
        stage("0" * 64, durable, nvme)
    assert str(durable) in str(error.value)
    assert not nvme.exists()


@pytest.mark.parametrize("name", ["../../x", "A" * 64, "0" * 63, f"{'0' * 64}\n"])
def test_only_a_digest_names_a_snapshot(durable, nvme, name):
    with pytest.raises(ValueError, match="expected a digest of 64 hex digits"):
        stage(name, durable, nvme)
    assert not is_staged("0" * 64, nvme) and not nvme.exists()


@pytest.mark.parametrize("field", ["shard", "tokenizer"])
def test_a_manifest_whose_names_leave_their_folder_is_refused(snapshot, durable, nvme, field):
    value = json.loads(snapshot.manifest())
    record, key = (value["tokenizer"], "sha256") if field == "tokenizer" else (value["splits"]["train"], "shards")
    record[key] = "../../x" if field == "tokenizer" else [{**record[key][0], "blake3": "../../x"}]
    data = atomic.canonical_json(value)
    (durable / "snapshots" / f"{digest.sha256(data)}.json").write_bytes(data)
    for read in (lambda sha256: shards.read_manifest(durable, sha256), lambda sha256: stage(sha256, durable, nvme)):
        with pytest.raises(ValueError, match=re.escape("found '../../x', expected a digest")):
            read(digest.sha256(data))
    assert not (nvme / "shards").exists()


@pytest.mark.process
def test_the_command_prints_what_was_staged_as_json(snapshot, durable, nvme):
    process = staging_process(snapshot.sha256, [durable], nvme)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["copied_shards"] == 4


@pytest.mark.process
def test_the_command_says_in_one_line_what_is_wrong(durable, nvme):
    process = staging_process("0" * 64, [durable], nvme)
    out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("slipway: snapshot 0000")


@pytest.mark.process
def test_a_full_disk_is_one_clear_error_and_nothing_partial(durable, small_disk):
    snapshot = make_snapshot(durable, shard_count=4, tokens=10_000)
    with pytest.raises(OSError, match="cannot be staged: No space left on device") as error:
        stage(snapshot.sha256, durable, small_disk)
    assert str(error.value.filename).startswith(str(small_disk))
    assert partial_copies(small_disk) == []
    assert_nothing_wrong_is_visible(small_disk)
    assert not is_staged(snapshot.sha256, small_disk)


@pytest.mark.process
def test_with_room_again_a_staging_that_filled_the_disk_is_finished(durable, small_disk):
    (small_disk / "other").write_bytes(bytes(40_000))
    snapshot = make_snapshot(durable, shard_count=1, tokens=10_000)
    with pytest.raises(OSError, match="No space left on device"):
        stage(snapshot.sha256, durable, small_disk)
    (small_disk / "other").unlink()
    stage(snapshot.sha256, durable, small_disk)
    assert_whole(snapshot, small_disk)


def test_a_second_staging_of_a_thousand_shards_reads_none_of_them(durable, nvme):
    """It goes by size, time and inode: a flipped bit behind their back would be found by whoever read. It is timed by
    `benchmarks/staging.py`."""
    snapshot = make_snapshot(durable, shard_count=999, tokens=50)
    stage(snapshot.sha256, durable, nvme)
    for shard in snapshot.shards():
        path = shards.shard_path(nvme, shard)
        before = path.stat()
        flip_a_bit(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 0

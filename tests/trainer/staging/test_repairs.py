"""Origins in order: what one lacks or has damaged comes from the next, and training never reads it."""

import random
import re
import shutil
from pathlib import Path

import pytest

from slipway.trainer.base import verify
from slipway.trainer.data import shards
from slipway.trainer.staging.stage import is_staged, stage
from tests.assets.datasets.snapshots import make_snapshot
from tests.trainer.staging.folders import (
    DAMAGES,
    assert_nothing_wrong_is_visible,
    assert_whole,
    cut_short,
    damaged_at_random,
    flip_a_bit,
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_shard_that_is_damaged_at_one_origin_comes_from_the_next(snapshot, durable, replica, nvme, damage):
    source = shards.shard_path(durable, snapshot.shards()[1])
    damage(source)
    staged = stage(snapshot.sha256, [durable, replica], nvme)
    assert any(str(durable) in fault and source.stem in fault for fault in staged.faults)
    assert_whole(snapshot, nvme)


def test_a_manifest_that_is_damaged_at_one_origin_comes_from_the_next(snapshot, durable, replica, nvme):
    flip_a_bit(shards.manifest_path(durable, snapshot.sha256))
    stage(snapshot.sha256, [durable, replica], nvme)
    assert_whole(snapshot, nvme)


def test_an_origin_that_is_away_is_skipped(snapshot, durable, replica, nvme):
    shutil.rmtree(durable)
    durable.write_text("not a folder any more")
    staged = stage(snapshot.sha256, [durable, replica], nvme)
    assert len(staged.faults) == 4 and "Not a directory" in staged.faults[0]
    assert_whole(snapshot, nvme)


def test_a_copy_that_began_at_a_damaged_origin_is_begun_anew(snapshot, durable, replica, nvme):
    shard = snapshot.shards()[0]
    partial = nvme / "partial" / f"{shard.blake3}.shard"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(bytes(1000))
    staged = stage(snapshot.sha256, durable, nvme)
    assert staged.faults == (), "the origin is not to blame"
    assert_whole(snapshot, nvme)


def test_when_no_origin_has_a_shard_whole_one_message_lists_what_each_has(snapshot, durable, replica, nvme):
    shard = snapshot.shards()[2]
    source = shards.shard_path(durable, shard)
    flip_a_bit(source)
    digest_of_damage = verify.measure(source).blake3
    shards.shard_path(replica, shard).unlink()
    with pytest.raises(ValueError, match="no origin has it whole") as error:
        stage(snapshot.sha256, [durable, replica], nvme)
    message = str(error.value)
    assert f"{durable}: shards/{shard.blake3}.shard: found BLAKE3 {digest_of_damage[:16]}..., expected" in message
    assert f"{shards.shard_path(replica, shard)}: missing" in message
    assert message.count("\n") == 0
    assert not shards.shard_path(nvme, shard).exists()
    assert not is_staged(snapshot.sha256, nvme)


def test_a_shard_cut_short_at_the_source_is_refused_with_its_size(snapshot, durable, nvme):
    cut_short(shards.shard_path(durable, snapshot.shards()[0]))
    with pytest.raises(ValueError, match=r"found 100 bytes, expected 2016"):
        stage(snapshot.sha256, durable, nvme)


def test_a_shard_missing_at_the_source_is_named(snapshot, durable, nvme):
    source = shards.shard_path(durable, snapshot.shards()[0])
    source.unlink()
    with pytest.raises(ValueError, match=re.escape(f"{source}: missing")):
        stage(snapshot.sha256, durable, nvme)
    assert_nothing_wrong_is_visible(nvme)


def repaired(count: int, seed: int, folder: Path) -> None:
    """Damage `count` of a snapshot's shards at the first origin or on the NVMe: all are found, and made whole."""
    draw = random.Random(seed)
    durable, nvme = folder / "durable", folder / "nvme"
    snapshot = make_snapshot(durable, shard_count=count - 1, tokens=200)
    replica = shutil.copytree(durable, folder / "replica")
    stage(snapshot.sha256, durable, nvme)
    for shard in snapshot.shards():
        if shards.shard_path(durable, shard).exists():
            damaged_at_random(shards.shard_path(durable, shard), draw)
        if shards.shard_path(nvme, shard).exists():
            damaged_at_random(shards.shard_path(nvme, shard), draw)
    assert not is_staged(snapshot.sha256, nvme)
    stage(snapshot.sha256, [durable, replica], nvme)
    assert_whole(snapshot, nvme)
    assert_nothing_wrong_is_visible(nvme)


def test_any_damage_is_found_and_repaired(tmp_path):
    repaired(20, seed=1, folder=tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_any_damage_in_two_hundred_shards_is_found_and_repaired(seed, tmp_path):
    repaired(200, seed, tmp_path)

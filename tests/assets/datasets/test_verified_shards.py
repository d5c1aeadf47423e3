"""Whole shards: a shard that was verified is not read again until its file changes."""

import numpy as np
import pytest

from slipway.assets.datasets.building.verified_shards import VerifiedShards
from slipway.trainer.base import verify
from slipway.trainer.data import shards


@pytest.fixture
def shard(durable):
    return shards.write_shard(durable, [np.arange(100, dtype=np.uint16)], "uint16")


@pytest.fixture
def noted(durable, shard, tmp_path):
    """The shard was verified by a build of the dataset."""
    (durable / "datasets" / "small").mkdir(parents=True)
    VerifiedShards(durable, "small").note([shard], tmp_path)


@pytest.fixture
def read(monkeypatch):
    """The files that are read for their hash."""
    paths, is_whole = [], verify.is_whole

    def recording(path, content):
        paths.append(path)
        return is_whole(path, content)

    monkeypatch.setattr(verify, "is_whole", recording)
    return paths


def test_a_shard_that_was_noted_is_not_read_again(durable, shard, noted, read):
    assert VerifiedShards(durable, "small").has(shard)
    assert read == []


def test_a_shard_that_nobody_noted_is_read(durable, shard, read):
    assert VerifiedShards(durable, "small").has(shard)
    assert read == [shards.shard_path(durable, shard)]


def test_a_change_at_once_after_a_shard_was_noted_is_seen(durable, shard, noted):
    path = shards.shard_path(durable, shard)
    path.write_bytes(bytes([255]) + path.read_bytes()[1:])
    assert not VerifiedShards(durable, "small").has(shard)


def test_a_noted_shard_that_is_gone_is_not_whole(durable, shard, noted):
    shards.shard_path(durable, shard).unlink()
    assert not VerifiedShards(durable, "small").has(shard)


def test_a_damaged_note_means_that_shards_are_read(durable, shard, noted, read):
    (durable / "datasets" / "small" / "whole.json").write_text("{")
    assert VerifiedShards(durable, "small").has(shard)
    assert len(read) == 1

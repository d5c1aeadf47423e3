"""Image shards and their manifests: read back as written, refused where they cannot be; pictures by number."""

import json
from pathlib import Path

import numpy as np
import pytest

from slipway.trainer.base import atomic, digest
from slipway.trainer.data import images, shards, snapshots
from slipway.trainer.data.pictures import Pictures
from slipway.trainer.loading.order import Order
from slipway.trainer.staging import stage

pytestmark = pytest.mark.pure

SHAPE = images.ImageShape(2, 3, 1)


def snapshot_of(tier: Path, *counts: int) -> images.ImageSnapshot:
    """A snapshot with a training shard of each count; the images are numbered through by their pixels and labels."""
    written, first = [], 0
    for count in counts:
        numbers = np.arange(first, first + count)
        pixels = np.broadcast_to(numbers[:, None, None, None], (count, *SHAPE)).astype(np.uint8)
        written.append(images.write_shard(tier, pixels, numbers.astype(np.uint32)))
        first += count
    splits = {"train": images.ImageSplit(first, tuple(written)), "validation": images.ImageSplit(0, ())}
    names = tuple(str(number) for number in range(first))
    image_snapshot = images.ImageSnapshot("numbered", "0" * 64, {}, {}, *SHAPE, names, splits)
    shards.write_manifest(tier, image_snapshot)
    return image_snapshot


def test_a_shard_is_the_pixels_padded_to_eight_bytes_and_then_the_labels(tmp_path: Path) -> None:
    shard = images.write_shard(tmp_path, np.arange(6, dtype=np.uint8).reshape(1, *SHAPE), np.array([258], np.uint32))
    data = shards.shard_path(tmp_path, shard).read_bytes()
    assert data.hex(" ") == "00 01 02 03 04 05 00 00 02 01 00 00"
    assert (shard.blake3, shard.bytes, shard.images) == (digest.of_bytes(data), 12, 1)


def test_pixels_and_labels_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 256, (5, *SHAPE), np.uint8), random.integers(0, 2**32, 5, np.uint32)
    read = images.open_images(tmp_path, images.write_shard(tmp_path, pixels, labels), SHAPE)
    assert np.array_equal(read[0], pixels) and np.array_equal(read[1], labels)
    assert not read[0].flags.writeable


def test_a_shard_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    image_snapshot = snapshot_of(tmp_path, 4)
    [shard] = image_snapshot.shards()
    assert isinstance(shard, images.ImageShard)
    with pytest.raises(ValueError, match=rf"{shard.blake3}.shard: found 40 bytes, expected 40"):
        images.open_images(tmp_path, shard, images.ImageShape(2, 3, 3))
    path = shards.shard_path(tmp_path, shard)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"{path}: found 39 bytes, expected 40"):
        images.open_images(tmp_path, shard, SHAPE)


def test_a_manifest_is_read_back_by_its_own_reader_and_by_that_of_either_kind(tmp_path: Path) -> None:
    image_snapshot = snapshot_of(tmp_path, 3, 2)
    assert images.read_manifest(tmp_path, image_snapshot.sha256) == image_snapshot
    assert snapshots.read(tmp_path, image_snapshot.sha256) == image_snapshot


def test_a_reader_of_texts_refuses_images_with_what_it_found(tmp_path: Path) -> None:
    image_snapshot = snapshot_of(tmp_path, 3)
    with pytest.raises(ValueError, match=r"format: found 'slipway.images/1', expected 'slipway.snapshot/1'"):
        shards.read_manifest(tmp_path, image_snapshot.sha256)


def put(tier: Path, value: object) -> str:
    data = atomic.canonical_json(value)
    atomic.create_only(shards.manifest_path(tier, digest.sha256(data)), data)
    return digest.sha256(data)


def test_a_later_version_is_refused_with_what_can_be_read(tmp_path: Path) -> None:
    sha256 = put(tmp_path, {"format": "slipway.images/2"})
    with pytest.raises(ValueError, match=r"format: found 'slipway.images/2', expected 'slipway.images/1'"):
        images.read_manifest(tmp_path, sha256)
    with pytest.raises(ValueError, match=r"expected 'slipway.snapshot/1', 'slipway.images/1' or 'slipway.mixture/1'"):
        snapshots.read(tmp_path, sha256)


@pytest.mark.parametrize("digest_of_shard", ["../../etc/passwd", "0" * 63, None])
def test_no_manifest_leads_out_of_its_tier(tmp_path: Path, digest_of_shard: str | None) -> None:
    value = json.loads(snapshot_of(tmp_path, 3).manifest())
    value["splits"]["train"]["shards"][0]["blake3"] = digest_of_shard
    with pytest.raises(ValueError, match=r"not a manifest of format slipway.images/1: found .* expected a digest"):
        snapshots.read(tmp_path, put(tmp_path, value))


def test_images_are_staged_by_the_same_code_as_texts(tmp_path: Path) -> None:
    image_snapshot = snapshot_of(tmp_path / "durable", 3, 2)
    path = shards.shard_path(tmp_path / "durable", image_snapshot.shards()[1])
    assert stage.stage(image_snapshot.sha256, tmp_path / "durable", tmp_path / "nvme").copied_shards == 2
    assert stage.is_staged(image_snapshot.sha256, tmp_path / "nvme")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"no origin has it whole: .* found BLAKE3"):
        stage.stage(image_snapshot.sha256, tmp_path / "durable", tmp_path / "other")


def test_pictures_come_by_their_numbers_over_all_shards(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path, snapshot_of(tmp_path, 3, 1, 4), "train")
    read = pictures.read(np.array([7, 0, 3, 7], np.uint64))
    assert (len(pictures), pictures.sizes.tolist()) == (8, [3, 1, 4])
    assert read.labels.tolist() == [7, 0, 3, 7]
    assert np.array_equal(read.pixels, np.broadcast_to(read.labels[:, None, None, None], (4, *SHAPE)))


def test_pictures_can_be_read_into_an_existing_buffer(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path, snapshot_of(tmp_path, 3), "train")
    room = pictures.empty(2)
    assert pictures.read(np.array([2, 1], np.uint64), room) is room
    assert room.labels.tolist() == [2, 1]


def test_an_epoch_in_order_shows_every_picture_once(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path, snapshot_of(tmp_path, 5, 9, 2), "train")
    order = Order(pictures.sizes, seed=1, block=2)
    labels = pictures.read(order.samples(0, 16)).labels.tolist()
    assert sorted(labels) == list(range(16)) != labels


def test_a_shard_is_brought_once_just_before_it_is_first_read(tmp_path: Path) -> None:
    brought: list[images.ImageShard] = []
    image_snapshot = snapshot_of(tmp_path, 3, 3)
    pictures = Pictures(tmp_path, image_snapshot, "train", brought.append)
    for number in (4, 5, 0):
        pictures.read(np.array([number], np.uint64))
    assert brought == [image_snapshot.shards()[1], image_snapshot.shards()[0]]


def test_a_split_without_images_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split validation of numbered has no image"):
        Pictures(tmp_path, snapshot_of(tmp_path, 3), "validation")

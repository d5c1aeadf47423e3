"""Datasets of labelled images: from Parquet files to image shards, and back."""

import os
import random
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from slipway.assets.datasets import garbage
from slipway.assets.datasets.building import workers
from slipway.assets.datasets.documents import document_table, extraction
from slipway.assets.datasets.images import steps
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.snapshots.difference import difference
from slipway.trainer.base import digest, verify
from slipway.trainer.data import shards
from slipway.trainer.staging import stage
from tests.assets.datasets import builds
from tests.assets.datasets.builds import content, strays
from tests.assets.datasets.digits import build, contents, digits, make_digits, png, recipe_for, write
from tests.s3 import put


@pytest.fixture
def corpus(tmp_path):
    return make_digits(tmp_path / "corpus")


def every(snapshot, durable) -> set[tuple[bytes, str]]:
    return contents(snapshot, durable, "train") | contents(snapshot, durable, "validation")


def test_every_image_is_read_back_with_its_class_from_one_of_the_splits(corpus, durable):
    snapshot = build(recipe_for(corpus), durable)
    pixels, labels = digits()
    assert every(snapshot, durable) == {(one.tobytes(), str(label)) for one, label in zip(pixels, labels, strict=True)}
    assert sum(split.images for split in snapshot.splits.values()) == len(labels)
    assert snapshot.classes == tuple("0123456789")
    assert len(snapshot.splits["train"].shards) > 5


def test_the_split_is_decided_by_the_pixels_alone(corpus, durable):
    snapshot = build(recipe_for(corpus), durable)
    for split in document_table.SPLITS:
        splits = {builds.split_of(digest.of_bytes(pixels), 0.2) for pixels, _ in contents(snapshot, durable, split)}
        assert splits == {split}


def test_no_image_changes_its_split_when_others_are_added(corpus, durable):
    held_out = contents(build(recipe_for(corpus), durable), durable, "validation")
    write(corpus / "a-first.parquet", [png(np.full((8, 8), gray, np.uint8)) for gray in range(50)], [3] * 50)
    assert held_out <= contents(build(recipe_for(corpus), durable), durable, "validation")


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_listing_and_number_of_workers_give_the_same_bytes(corpus, tmp_path, durable, monkeypatch, seed):
    build(recipe_for(corpus), durable)
    listed = sources._entries
    monkeypatch.setattr(sources, "_entries", lambda *arguments: _shuffled(listed(*arguments), seed))
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 0 if seed == 0 else 1 << 30)
    monkeypatch.setattr("slipway.assets.datasets.documents.extraction.UNIT_FILES", 1 + seed)
    build(recipe_for(corpus), tmp_path / "again")
    assert content(tmp_path / "again") == content(durable)


def _shuffled(entries: Iterable[os.DirEntry[str]], seed: int) -> list[os.DirEntry[str]]:
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    return shuffled


def test_an_incremental_build_gives_the_bytes_of_one_from_nothing_and_shares_most_shards(corpus, tmp_path, durable):
    parent = build(recipe_for(corpus), durable)
    pixels, labels = digits()
    write(
        corpus / "digits-2.parquet", [png(255 - pixels[0]), *map(png, pixels[599:898])], labels[[0, *range(599, 898)]]
    )
    (corpus / "digits-5.parquet").rename(corpus / "digits-9.parquet")
    snapshot = build(recipe_for(corpus), durable)
    assert snapshot.manifest() == build(recipe_for(corpus), tmp_path / "anew").manifest()
    assert content(tmp_path / "anew").items() <= content(durable).items()
    changes = difference(parent, snapshot, durable)
    assert changes.shared_shards >= changes.shards - 4
    assert strays(durable) == []


def test_only_new_and_changed_files_are_read(corpus, durable, monkeypatch):
    build(recipe_for(corpus), durable)
    write(corpus / "digits-3.parquet", [png(digits()[0][7])], [7])
    read = list[str]()

    def noted(listing, file, how):
        read.append(file.name)
        return OpenedFile(listing, file, how)

    monkeypatch.setattr(extraction, "OpenedFile", noted)
    build(recipe_for(corpus), durable)
    assert read == ["digits-3.parquet"]


def test_a_damaged_shard_of_the_parent_is_written_again(corpus, durable):
    parent = build(recipe_for(corpus), durable)
    path = shards.shard_path(durable, parent.shards()[0])
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    write(corpus / "z-last.parquet", [png(np.zeros((8, 8), np.uint8))], [0])
    build(recipe_for(corpus), durable)
    assert verify.measure(path).blake3 == path.stem


def test_equal_pixels_are_kept_once_and_a_different_label_has_its_own_reason(corpus, durable):
    pixels, labels = digits()
    other = (labels[0] + 1) % 10
    write(corpus / "z-last.parquet", [png(pixels[0]), png(pixels[1]), png(pixels[0])], [labels[0], labels[1], other])
    record = steps.make_documents(recipe_for(corpus), durable)
    assert (record.result["rows"], record.result["kept_rows"]) == (len(labels) + 3, len(labels))
    table = document_table.path(durable, record.result["blake3"])
    removed = pa.parquet.read_table(table).slice(len(labels))["removed"].to_pylist()
    assert removed == ["exact_duplicate", "exact_duplicate", "duplicate_with_another_label"]


def test_a_new_label_of_the_same_pixels_is_a_changed_document(corpus, durable):
    parent = build(recipe_for(corpus), durable)
    pixels, labels = digits()
    write(corpus / "digits-0.parquet", [*map(png, pixels[:300])], [(labels[0] + 1) % 10, *labels[1:300]])
    changes = difference(parent, build(recipe_for(corpus), durable), durable).documents
    assert changes is not None
    assert (changes.added, changes.removed, changes.changed) == (0, 0, 1)


def test_a_new_class_has_its_place_among_the_others(corpus, durable):
    write(corpus / "z-last.parquet", [png(np.full((8, 8), 9, np.uint8))], [-1])
    assert build(recipe_for(corpus), durable).classes == ("-1", *"0123456789")


def test_classes_may_have_names(tmp_path, durable):
    images = [png(np.full((8, 8), gray, np.uint8)) for gray in range(40)]
    write(tmp_path / "corpus" / "named.parquet", images, [("dog", "cat", "10")[gray % 3] for gray in range(40)])
    snapshot = build(recipe_for(tmp_path / "corpus"), durable)
    assert snapshot.classes == ("10", "cat", "dog")
    assert (bytes([1] * 64), "cat") in every(snapshot, durable)


def test_a_snapshot_of_images_is_staged_like_one_of_texts(corpus, tmp_path, durable):
    snapshot = build(recipe_for(corpus), durable)
    first = stage.stage(snapshot.sha256, durable, tmp_path / "nvme")
    assert first.copied_shards == len(snapshot.shards())
    assert every(snapshot, tmp_path / "nvme") == every(snapshot, durable)
    assert stage.stage(snapshot.sha256, durable, tmp_path / "nvme").copied_bytes == 0


def test_garbage_keeps_the_shards_of_images_that_a_dataset_points_at(corpus, durable):
    parent = build(recipe_for(corpus), durable)
    write(corpus / "digits-0.parquet", [png(digits()[0][0])], [0])
    snapshot = build(recipe_for(corpus), durable)
    collected = garbage.collect(durable, lambda: [], keep=0, older=-1)
    assert {path.stem for path in collected.files if path.suffix == ".shard"} == {
        shard.blake3 for shard in parent.shards()
    } - {shard.blake3 for shard in snapshot.shards()}
    assert every(snapshot, durable)


def test_files_that_are_not_parquet_are_skipped(corpus, durable):
    (corpus / "README.md").write_text("Digits.")
    assert steps.make_documents(recipe_for(corpus), durable).inputs["source"]["files"] == 6


def test_a_folder_without_parquet_files_is_refused(tmp_path, durable):
    (tmp_path / "README.md").write_text("Digits.")
    with pytest.raises(ValueError, match=r"dataset digits: found no document in .* expected at least one Parquet file"):
        steps.make_documents(recipe_for(tmp_path), durable)


def test_images_of_an_object_store_give_the_shards_of_the_same_files_in_a_folder(corpus, tmp_path, durable, s3):
    bucket = s3.new_bucket()
    for path in corpus.iterdir():
        put(bucket, path.name, path.read_bytes())
    remote = build(recipe_for(corpus, source={"kind": "s3", "url": str(bucket)}), tmp_path / "remote")
    assert remote.splits == build(recipe_for(corpus), durable).splits

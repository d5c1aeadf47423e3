"""The lane of an image dataset, materialised by Dagster with real tiers."""

import base64
import io
from typing import Any

import dagster as dg
import numpy as np
import pytest
from PIL import Image

from slipway.assets.datasets.assets import dataset_assets
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.staging import staging_assets
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.tiers import Tiers
from tests.assets.datasets.builds import hold_none_out
from tests.assets.datasets.digits import digits, make_digits, png, recipe_for, write


@pytest.fixture
def corpus(tmp_path):
    return make_digits(tmp_path / "corpus")


def materialize(recipe, durable, assets=dataset_assets, **more) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        assets(recipe),
        resources={
            "tiers": Tiers(durable=str(durable), nvme=str(durable.parent / "{node}")),
            "compute": EmbeddedCompute(jobs=str(durable.parent / "jobs"), nodes=str(durable.parent), names=["node-1"]),
        },
        raise_on_error=False,
        **more,
    )


def metadata_of(result, asset: str) -> dict[str, Any]:
    [event] = [
        event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey(["digits", asset])
    ]
    return {name: value.value for name, value in event.metadata.items()}


def checks_of(result) -> dict[str, dg.AssetCheckEvaluation]:
    return {check.check_name: check for check in result.get_asset_check_evaluations()}


def test_the_lane_has_documents_and_a_snapshot_and_no_tokenizer(corpus):
    keys = [asset.key.to_user_string() for asset in dataset_assets(recipe_for(corpus))]
    assert keys == ["digits/documents", "digits/snapshot"]


def test_the_lane_ends_with_a_snapshot_that_the_dataset_points_at(corpus, durable):
    result = materialize(recipe_for(corpus), durable)
    assert result.success
    metadata = metadata_of(result, "snapshot")
    assert pointer.current(durable, "digits") == metadata["snapshot"]
    assert (metadata["shape"], metadata["classes"], metadata["dagster/row_count"]) == (
        "8 x 8 x 1",
        10,
        len(digits()[1]),
    )
    assert all(check.passed for check in checks_of(result).values())


def test_documents_show_the_classes_of_each_split(corpus, durable):
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "documents")
    assert metadata["dagster/row_count"] == metadata["train_images"] + metadata["validation_images"] == len(digits()[1])
    first = metadata["classes"].splitlines()[2].replace("|", " ").split()
    assert first[0] == "0"
    assert int(first[1]) + int(first[2]) == int((digits()[1] == 0).sum())


def test_the_contact_sheet_shows_images_of_each_class(corpus, durable):
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "snapshot")["contact_sheet"]
    data = base64.b64decode(metadata.partition("base64,")[2].rstrip(")"))
    assert len(data) < 30_000
    sheet = np.asarray(Image.open(io.BytesIO(data)))
    assert sheet.shape == (320, 256, 3)
    assert all(tile.min() < 50 and tile.max() > 150 for row in np.split(sheet, 10) for tile in np.split(row, 8, axis=1))


@pytest.mark.slow
def test_the_contact_sheet_of_noise_is_small_too(tmp_path, durable):
    noise = np.random.default_rng(0).integers(0, 256, (200, 32, 32, 3), np.uint8)
    write(
        tmp_path / "corpus" / "noise.parquet", [png(pixels) for pixels in noise], [number % 12 for number in range(200)]
    )
    sheet = metadata_of(materialize(recipe_for(tmp_path / "corpus", 32, 32, 3), durable), "snapshot")["contact_sheet"]
    assert len(base64.b64decode(sheet.partition("base64,")[2].rstrip(")"))) < 30_000


def test_a_class_that_one_split_lacks_is_a_warning(corpus, durable):
    write(corpus / "z-last.parquet", [png(np.full((8, 8), 9, np.uint8))], [77])
    result = materialize(recipe_for(corpus), durable)
    check = checks_of(result)["every_class_in_both_splits"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["classes_lacking"].value == ["77"]
    assert pointer.current(durable, "digits") == metadata_of(result, "snapshot")["snapshot"]


def test_classes_that_drift_from_the_parent_block_the_snapshot(corpus, durable):
    materialize(recipe_for(corpus), durable)
    before = pointer.current(durable, "digits")
    random = np.random.default_rng(0)
    write(corpus / "z-last.parquet", [png(random.integers(0, 9, (8, 8), np.uint8)) for _ in range(2000)], [3] * 2000)
    failed = [name for name, check in checks_of(materialize(recipe_for(corpus), durable)).items() if not check.passed]
    assert failed == ["no_drift"]
    assert pointer.current(durable, "digits") == before


def test_an_empty_split_blocks_the_snapshot(corpus, durable):
    hold_none_out(durable, "digits")
    result = materialize(recipe_for(corpus, split={"validation": 1e-9}), durable)
    assert not checks_of(result)["no_empty_split"].passed
    assert pointer.current(durable, "digits") is None


def test_a_source_without_a_row_blocks_the_snapshot(tmp_path, durable):
    write(tmp_path / "corpus" / "empty.parquet", [], [])
    result = materialize(recipe_for(tmp_path / "corpus"), durable)
    assert not checks_of(result)["no_empty_split"].passed
    assert pointer.current(durable, "digits") is None


def test_too_many_images_that_cannot_be_read_fail_the_documents_with_their_reasons(corpus, durable):
    write(corpus / "z-last.parquet", [b"text"] * 30 + [png(digits()[0][0])[:-20]] * 10, [0] * 40)
    result = materialize(recipe_for(corpus), durable)
    failure = result.failure_data_for_node("digits__documents")
    assert failure and failure.error and failure.error.cause
    assert (
        "dataset digits: 40 of 1837 documents cannot be read, 2.2%, expected at most 1.0% (reading.quarantine): "
        "not an image (30, such as z-last.parquet); damaged image (10, such as z-last.parquet)"
    ) in failure.error.cause.message


def test_few_images_that_cannot_be_read_are_counted_and_shown(corpus, durable):
    write(corpus / "z-last.parquet", [b"text"], [0])
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "documents")
    assert metadata["left_out"] == {"unreadable: not an image": 1}
    assert "| unreadable: not an image | 1 | z-last.parquet#0 |" in metadata["samples_left_out"]


def test_a_snapshot_shows_its_difference_to_its_parent(corpus, durable):
    materialize(recipe_for(corpus), durable)
    write(corpus / "z-last.parquet", [png(np.zeros((8, 8), np.uint8))], [0])
    metadata = metadata_of(materialize(recipe_for(corpus), durable), "snapshot")
    assert (metadata["documents_added"], metadata["documents_removed"], metadata["documents_changed"]) == (1, 0, 0)
    assert 0 < metadata["shared_shards"] < metadata["shards"]


@pytest.mark.slow
def test_the_shards_are_staged_on_a_node(corpus, durable):
    with dg.instance_for_test() as instance:
        materialize(recipe_for(corpus), durable, instance=instance)
        instance.add_dynamic_partitions("nodes", ["node-1"])
        lane = [*dataset_assets(recipe_for(corpus)), *staging_assets(recipe_for(corpus))]
        chosen = {"selection": ["digits/staged_shards"], "partition_key": "node-1", "instance": instance}
        assert materialize(recipe_for(corpus), durable, lambda _: lane, **chosen).success
    assert list((durable.parent / "node-1" / "shards").glob("*.shard"))

"""Checks of a snapshot of images, read back from the durable tier, before a dataset points at it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow.parquet as pq

from slipway.assets.datasets.building.build_log import BuildLog, quiet
from slipway.assets.datasets.images.documents import ClassCounts, count_classes
from slipway.assets.datasets.snapshots import losses
from slipway.assets.datasets.snapshots.outcomes import (
    Outcome,
    drift_is_small,
    enough_is_kept,
    in_turn,
    no_split_is_empty,
    splits_are_disjoint,
    table_of,
    volume_is_kept,
)
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.warehouse import stability_index
from slipway.trainer.base import digest
from slipway.trainer.data import images

SAMPLE = 20
"""The number of evenly spaced images of each split to compare with the table."""
CHECKS = {
    "no_empty_split": "Both splits contain images.",
    "no_document_in_both_splits": "No image is in both the train and the validation split.",
    "shards_hold_the_images": f"A sample of {SAMPLE} images of each split is the same in shards and documents table.",
    "enough_is_kept": "The share of images that were left out is within the recipe's limit.",
    "no_shrinkage": "The snapshot has not shrunk, compared with its parent, by more than the recipe allows.",
    "no_drift": "The distribution of classes differs from the parent's by no more than the recipe allows.",
    "removals_are_steady": losses.CHECKS["removals_are_steady"],
    "every_class_in_both_splits": "Every class has images in both splits. A failure is only a warning.",
}


def outcomes(
    recipe: DatasetRecipe,
    snapshot: images.ImageSnapshot,
    parent: images.ImageSnapshot | None,
    durable: Path,
    log: BuildLog = quiet,
) -> list[Outcome]:
    """The outcomes of `CHECKS`, in their order."""
    table = table_of(snapshot, durable)
    checks: list[Callable[[], Outcome]] = [
        lambda: _no_split_is_empty(recipe, snapshot),
        lambda: splits_are_disjoint(table),
        lambda: _shards_hold_the_images(snapshot, table, durable),
        lambda: enough_is_kept(recipe, table),
        lambda: volume_is_kept(recipe, snapshot, parent, durable),
        lambda: drift_is_small(recipe, snapshot, parent, durable, drift),
        lambda: losses.removals_are_steady(recipe, snapshot, parent, durable),
        lambda: _every_class_is_in_both_splits(count_classes(table)),
    ]
    return in_turn(checks, log)


def _no_split_is_empty(recipe: DatasetRecipe, snapshot: images.ImageSnapshot) -> Outcome:
    counts = {f"{name}_images": split.images for name, split in snapshot.splits.items()}
    return no_split_is_empty(recipe, {name: split.images for name, split in snapshot.splits.items()}, counts)


def _shards_hold_the_images(snapshot: images.ImageSnapshot, table: Path, durable: Path) -> Outcome:
    sampled, found_wrong = wrong(snapshot, durable, table)
    return Outcome(found_wrong == 0 and sampled > 0, {"images_read": sampled, "images_wrong": found_wrong})


def _every_class_is_in_both_splits(counts: ClassCounts) -> Outcome:
    missing = counts.missing_classes()
    return Outcome(not missing, {"classes_lacking": missing}, dg.AssetCheckSeverity.WARN)


def wrong(snapshot: images.ImageSnapshot, tier: Path, table: Path) -> tuple[int, int]:
    """The number of images in a fixed sample, and the number of those whose class differs from the table's."""
    columns = pq.read_table(table, columns=["split", "blake3", "label"]).to_pydict()
    known = set(zip(columns["split"], columns["blake3"], columns["label"], strict=True))
    sampled = list(_sample(snapshot, tier))
    return len(sampled), sum(pair not in known for pair in sampled)


def drift(before: Path, after: Path) -> dict[str, float]:
    """The population stability index of images by class, from one table to another."""
    return {"classes": stability_index(*(count_classes(table).totals for table in (before, after)))}


def _sample(snapshot: images.ImageSnapshot, tier: Path) -> Iterator[tuple[str, str, str]]:
    """Images by number, at even distances over each split: the split, the hash of the pixels, the class."""
    for name, split in snapshot.splits.items():
        numbers = np.unique(np.linspace(0, split.images - 1, min(SAMPLE, split.images), dtype=int)).tolist()
        begin = 0
        for shard in split.shards:
            pixels, labels = images.open_images(tier, shard, snapshot.shape)
            for number in (number - begin for number in numbers if begin <= number < begin + shard.images):
                yield name, digest.of_bytes(pixels[number].tobytes()), snapshot.classes[labels[number]]
            begin += shard.images

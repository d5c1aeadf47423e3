"""Images: what the lane of a dataset of labelled images does, and what must hold of its snapshots."""

from pathlib import Path

import dagster as dg

from assets.datasets import documents
from assets.datasets.content import Content, Outcome
from assets.datasets.images import checks, metadata, snapshot, steps, table
from assets.datasets.texts import disjoint
from recipes.dataset import Dataset
from resources.warehouse import stability_index
from trainer import images

CHECKS = {
    "no_empty_split": "Both splits hold images.",
    "no_document_in_both_splits": "No image is kept in the train and in the validation split.",
    "shards_hold_the_images": f"{checks.SAMPLE} images of each split are in the shards as in the documents table.",
    "no_drift": "The classes are distributed as in the parent snapshot, within the recipe's limit.",
    "every_class_in_both_splits": "Each class has images in both splits; a warning.",
}


def _outcomes(recipe: Dataset, made: images.Snapshot, parent: images.Snapshot | None, durable: Path) -> list[Outcome]:
    path = documents.table_path(durable, made.documents["blake3"])
    counts = checks.counts(path)
    sampled, wrong = checks.wrong(made, durable, path)
    return [
        Outcome(
            all(split.images for split in made.splits.values()),
            {f"{name}_images": split.images for name, split in made.splits.items()},
        ),
        disjoint(path),
        Outcome(wrong == 0 and sampled > 0, {"images_read": sampled, "images_wrong": wrong}),
        _steady(recipe, counts, parent, durable),
        Outcome(not counts.lacking(), {"classes_lacking": counts.lacking()}, dg.AssetCheckSeverity.WARN),
    ]


def _steady(recipe: Dataset, counts: checks.Counts, parent: images.Snapshot | None, durable: Path) -> Outcome:
    """Whether the classes are as frequent as in the parent; a first snapshot has nothing to drift from."""
    before = None if parent is None else documents.table_path(durable, parent.documents["blake3"])
    if before is None or not before.exists():
        return Outcome(True, {"note": "there is no parent snapshot to compare with"})
    found = stability_index(checks.counts(before).totals, counts.totals)
    return Outcome(found <= recipe.checks.drift, {"classes": found, "limit": recipe.checks.drift})


IMAGES = Content(
    versions={"documents": table.VERSION, "snapshot": snapshot.VERSION},
    shards_of="image",
    checks=CHECKS,
    read=images.read_manifest,
    make_snapshot=steps.make_snapshot,
    outcomes=_outcomes,
    of_documents=metadata.of_documents,
    of_snapshot=metadata.of_snapshot,
)

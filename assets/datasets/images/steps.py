"""The snapshot step of an image dataset; its documents are made by the same step as those of texts."""

from pathlib import Path
from typing import Any

from assets.datasets import steps
from assets.datasets.documents import Documents
from assets.datasets.extraction import Report
from assets.datasets.images import snapshot
from assets.datasets.memo import Memo, Record
from assets.datasets.workshop import workshop
from recipes.dataset import Dataset
from trainer import images, shards, snapshots


def make_snapshot(recipe: Dataset, durable: Path, report: Report = steps.quiet) -> Record:
    """The snapshot of the latest documents. Raises ValueError when they are not made yet."""
    plan = plan_of(recipe, steps.latest(recipe, durable, "documents"))

    with workshop(durable, recipe.name) as shop:

        def make() -> tuple[dict[str, Any], list[Path]]:
            index, parent = steps.extracts_of(recipe, durable), parent_of(recipe, durable)
            built = snapshot.build(plan, index, parent, durable, shop, report)
            paths = [shards.shard_path(durable, shard) for shard in built.shards()]
            return {"sha256": built.sha256}, [shards.manifest_path(durable, built.sha256), *paths]

        return Memo(durable, recipe.name).once("snapshot", inputs_of(plan), shop, make)


def parent_of(recipe: Dataset, durable: Path) -> images.Snapshot | None:
    """The snapshot made last, if it is of images: the one to share shards with."""
    record = Memo(durable, recipe.name).latest("snapshot")
    parent = None if record is None else snapshots.read(durable, record.result["sha256"])
    return parent if isinstance(parent, images.Snapshot) else None


def plan_of(recipe: Dataset, table: Record) -> snapshot.Plan:
    """What a snapshot of this documents table is made of."""
    assert recipe.images is not None
    return snapshot.Plan(
        dataset=recipe.name,
        recipe_sha256=steps.content_sha256(recipe),
        source=table.inputs["source"],
        table=Documents(**table.result),
        images=recipe.images,
    )


def inputs_of(plan: snapshot.Plan) -> dict[str, Any]:
    """All that decides a snapshot's bytes."""
    return {
        "version": snapshot.VERSION,
        "recipe": plan.recipe_sha256,
        "source": plan.source,
        "documents": plan.table.blake3,
        "shard_megabytes": plan.images.shard_megabytes,
    }

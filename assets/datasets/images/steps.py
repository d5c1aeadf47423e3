"""The steps of a dataset of images: documents and snapshot, each made once for the same inputs."""

from pathlib import Path
from typing import Any

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import BuildLog, quiet
from slipway.assets.datasets.building.step_cache import Record
from slipway.assets.datasets.documents import document_step
from slipway.assets.datasets.documents.document_table import DocumentTable
from slipway.assets.datasets.images import snapshot
from slipway.assets.datasets.images.documents import IMAGE_DOCUMENTS
from slipway.assets.datasets.snapshots import snapshot_step
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import images


def make_documents(recipe: DatasetRecipe, durable: Path, log: BuildLog = quiet) -> Record:
    """The documents table of the present source. Raises as `document_step.make` does."""
    return document_step.make(recipe, IMAGE_DOCUMENTS, durable, log)


def make_snapshot(recipe: DatasetRecipe, durable: Path, log: BuildLog = quiet) -> Record:
    """The snapshot of the latest documents. Raises ValueError if they are not made yet."""
    documents = document_step.latest(recipe, durable)
    plan = _plan(recipe, documents)

    with begin_build(recipe, IMAGE_DOCUMENTS, durable, log) as build:

        def write() -> images.ImageSnapshot:
            index = document_step.index_of(documents, durable)
            parent = _parent(plan, durable)
            return snapshot.write(build, plan, index, parent)

        return snapshot_step.make(build, _snapshot_inputs(plan), write)


def up_to_date(recipe: DatasetRecipe, durable: Path) -> str | None:
    """The SHA-256 of the snapshot that recipe and source give now, if the dataset points at it already.

    Nothing is read but the source's listing. Raises ValueError as `sources.list_source` does.
    """
    documents = document_step.recall(recipe, IMAGE_DOCUMENTS, durable)
    if documents is None:
        return None
    return snapshot_step.current_if_made_of(_snapshot_inputs(_plan(recipe, documents)), durable, recipe.name)


def _plan(recipe: DatasetRecipe, documents: Record) -> snapshot.ImagePlan:
    assert recipe.images is not None
    return snapshot.ImagePlan(
        dataset=recipe.name,
        recipe_sha256=snapshot_step.recipe_sha256(recipe),
        source=documents.inputs["source"],
        table=DocumentTable(**documents.result),
        images=recipe.images,
    )


def _parent(plan: snapshot.ImagePlan, durable: Path) -> images.ImageSnapshot | None:
    """The last snapshot if it is of images, because the new one may share its shards."""
    parent = snapshot_step.latest(durable, plan.dataset)
    if not isinstance(parent, images.ImageSnapshot):
        return None
    return parent


def _snapshot_inputs(plan: snapshot.ImagePlan) -> dict[str, Any]:
    """Everything that decides the snapshot's bytes."""
    return {
        "version": snapshot.VERSION,
        "recipe": plan.recipe_sha256,
        "source": plan.source,
        "documents": plan.table.blake3,
        "shard_megabytes": plan.images.shard_megabytes,
    }

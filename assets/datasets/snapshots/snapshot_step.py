"""The step that makes a dataset's snapshot, once for the same inputs, whatever the documents are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipway.assets.datasets.building.memo import Memo, Record
from slipway.assets.datasets.building.whole import WholeShards
from slipway.assets.datasets.building.workshop import workshop
from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import atomic, digest
from slipway.trainer.data import shards, snapshots
from slipway.trainer.data.shards import SnapshotManifest
from slipway.trainer.data.snapshots import Snapshot

STEP = "snapshot"


def make(dataset: str, durable: Path, inputs: dict[str, Any], build: Callable[[Path], SnapshotManifest]) -> Record:
    """The snapshot of these inputs: the remembered one, or the one that `build` writes in the dataset's workshop."""
    with workshop(durable, dataset) as shop:
        built: SnapshotManifest | None = None

        def write() -> tuple[dict[str, Any], list[Path]]:
            nonlocal built
            built = build(shop)
            paths = [shards.shard_path(durable, shard) for shard in built.shards()]
            return {"sha256": built.sha256}, [shards.manifest_path(durable, built.sha256), *paths]

        record = Memo(durable, dataset).once(STEP, inputs, shop, write)
        if built is not None:
            WholeShards(durable, dataset).note(built.shards(), shop)
        return record


def current_if_made_of(inputs: dict[str, Any], durable: Path, dataset: str) -> str | None:
    """The SHA-256 of the snapshot that the dataset points at, if it was made of these inputs."""
    record, sha256 = Memo(durable, dataset).recall(STEP, inputs), pointer.current(durable, dataset)
    return sha256 if record is not None and record.result["sha256"] == sha256 else None


def latest(durable: Path, dataset: str) -> Snapshot | None:
    """The snapshot made last, of either kind. Raises ValueError when its manifest cannot be read."""
    record = Memo(durable, dataset).latest(STEP)
    return None if record is None else snapshots.read(durable, record.result["sha256"])


def recipe_sha256(recipe: DatasetRecipe) -> str:
    """The SHA-256 of what a recipe decides of a snapshot's content."""
    return digest.sha256(atomic.canonical_json(recipe.content()))

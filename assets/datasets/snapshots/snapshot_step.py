"""The step that makes a dataset's snapshot, once for the same inputs, for both kinds of documents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.step_cache import Record, StepCache
from slipway.assets.datasets.building.verified_shards import VerifiedShards
from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import atomic, digest
from slipway.trainer.data import shards, snapshots
from slipway.trainer.data.shards import SnapshotManifest
from slipway.trainer.data.snapshots import Snapshot

STEP = "snapshot"


def make(build: Build, inputs: dict[str, Any], write: Callable[[], SnapshotManifest]) -> Record:
    """The snapshot for these inputs: the recorded one, or the one that `write` writes."""
    written: SnapshotManifest | None = None

    def once() -> tuple[dict[str, Any], list[Path]]:
        nonlocal written
        written = write()
        paths = [shards.shard_path(build.durable, shard) for shard in written.shards()]
        return {"sha256": written.sha256}, [shards.manifest_path(build.durable, written.sha256), *paths]

    record = build.once(STEP, inputs, once)
    if written is not None:
        VerifiedShards(build.durable, build.recipe.name).note(written.shards(), build.scratch)
    return record


def current_if_made_of(inputs: dict[str, Any], durable: Path, dataset: str) -> str | None:
    """The SHA-256 of the dataset's current snapshot, if it was made from these inputs."""
    record = StepCache(durable, dataset).recall(STEP, inputs)
    sha256 = pointer.current(durable, dataset)
    if record is not None and record.result["sha256"] == sha256:
        return sha256
    return None


def latest(durable: Path, dataset: str) -> Snapshot | None:
    """The last snapshot, of either kind. Raises ValueError if its manifest cannot be read."""
    record = StepCache(durable, dataset).latest(STEP)
    if record is None:
        return None
    return snapshots.read(durable, record.result["sha256"])


def recipe_sha256(recipe: DatasetRecipe) -> str:
    """The SHA-256 of the part of a recipe that decides a snapshot's content."""
    return digest.sha256(atomic.canonical_json(recipe.content()))


def entropy(counts: npt.NDArray[np.int64], sha256: str) -> float:
    """H = -sum p ln p (Shannon 1948), in nats, of what was counted in the validation split of a snapshot.

    Raises ValueError, naming the snapshot, when nothing was counted.
    """
    if not counts.sum():
        raise ValueError(f"snapshot {sha256}: its validation split is empty, so it has no entropy")
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())

"""The training data of a recipe: the current snapshot of its dataset, or a mixture of several.

The first request for a mixture writes it. A mixture depends only on the current snapshots of its datasets, so every
request finds the same one.
"""

import functools
from pathlib import Path

from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.training import TrainingRecipe
from slipway.trainer.data import mixtures, shards, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.snapshots import Snapshot


def current(recipe: TrainingRecipe, durable: Path) -> str | None:
    """The SHA-256 of the snapshot that a new training of the recipe reads; None while a dataset has none.

    Raises ValueError for datasets that cannot be mixed, with both names.
    """
    pointed = _pointed(recipe, durable)
    if pointed is None or len(pointed) == 1:
        return None if pointed is None else pointed[0][1]
    mixture = _mixture(durable, pointed)
    # Garbage collection keeps young files, so a collection that does not know the new training removes nothing of it.
    if not shards.made_young(shards.manifest_path(durable, mixture.sha256)):
        shards.write_manifest(durable, mixture)
    return mixture.sha256


def read(recipe: TrainingRecipe, durable: Path) -> Snapshot | None:
    """The same snapshot as `current`, without writing it. Raises as `current`, and for an unreadable manifest."""
    pointed = _pointed(recipe, durable)
    if pointed is None:
        return None
    if len(pointed) == 1:
        return snapshots.read(durable, pointed[0][1])
    return _mixture(durable, pointed)


def missing_snapshots(recipe: TrainingRecipe, durable: Path) -> str:
    """The message for a recipe whose datasets have no snapshot yet."""
    missing = [name for name in recipe.datasets if pointer.current(durable, name) is None]
    makes = ", ".join(f"slipway data build {name}" for name in missing)
    return f"{' and '.join(f'dataset {name}' for name in missing)} has no snapshot yet; to make it: {makes}"


def _pointed(recipe: TrainingRecipe, durable: Path) -> tuple[tuple[str, str], ...] | None:
    """Each dataset and its current snapshot; None if one has none."""
    pointed = [(name, pointer.current(durable, name)) for name in recipe.datasets]
    known = tuple((name, sha256) for name, sha256 in pointed if sha256 is not None)
    return known if len(known) == len(pointed) else None


@functools.lru_cache(maxsize=8)
def _mixture(durable: Path, pointed: tuple[tuple[str, str], ...]) -> MixtureSnapshot:
    return mixtures.mixture({name: snapshots.read(durable, sha256) for name, sha256 in pointed})

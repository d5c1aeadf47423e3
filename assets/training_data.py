"""Training data: the snapshot that a training of a recipe reads now: its dataset's, or the mixture of several.

A mixture is written where it is first asked for. It follows from the snapshots that the datasets point at, so that
whoever asks gets the same one.
"""

import functools
from pathlib import Path

from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.training import TrainingRecipe
from slipway.trainer.data import mixtures, shards, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.snapshots import Snapshot


def current(recipe: TrainingRecipe, durable: Path) -> str | None:
    """The snapshot, by SHA-256, that a training of the recipe reads now; None while a dataset has none.

    Raises ValueError for datasets that cannot be mixed, with both names.
    """
    pointed = _pointed(recipe, durable)
    if pointed is None or len(pointed) == 1:
        return None if pointed is None else pointed[0][1]
    mixture = _mixture(durable, pointed)
    # A file that is young stays, whatever a garbage collection finds that has not seen the new training yet.
    if not shards.made_young(shards.manifest_path(durable, mixture.sha256)):
        shards.write_manifest(durable, mixture)
    return mixture.sha256


def read(recipe: TrainingRecipe, durable: Path) -> Snapshot | None:
    """The same snapshot, without writing anything. Raises as `current`, and for a manifest that cannot be read."""
    pointed = _pointed(recipe, durable)
    if pointed is None:
        return None
    return snapshots.read(durable, pointed[0][1]) if len(pointed) == 1 else _mixture(durable, pointed)


def missing_snapshots(recipe: TrainingRecipe, durable: Path) -> str:
    """The message about a recipe whose data is not there yet."""
    missing = [name for name in recipe.datasets if pointer.current(durable, name) is None]
    makes = ", ".join(f"slipway data build {name}" for name in missing)
    return f"{' and '.join(f'dataset {name}' for name in missing)} has no snapshot yet; to make it: {makes}"


def _pointed(recipe: TrainingRecipe, durable: Path) -> tuple[tuple[str, str], ...] | None:
    """Each dataset and the snapshot that it points at; None when one has none."""
    pointed = [(name, pointer.current(durable, name)) for name in recipe.datasets]
    known = tuple((name, sha256) for name, sha256 in pointed if sha256 is not None)
    return known if len(known) == len(pointed) else None


@functools.lru_cache(maxsize=8)
def _mixture(durable: Path, pointed: tuple[tuple[str, str], ...]) -> MixtureSnapshot:
    return mixtures.mixture({name: snapshots.read(durable, sha256) for name, sha256 in pointed})

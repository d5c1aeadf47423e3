"""Takedown: documents leave a dataset for good, and it is said which snapshots, trainings and models have seen them.

The takedown is noted first, then the dataset is built: whatever interrupts this, the next build leaves them out.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from assets.datasets import takedown_search
from assets.datasets.build import build
from assets.datasets.documents import takedowns
from assets.datasets.documents.kind import DocumentKind
from assets.datasets.documents.takedowns import Takedown
from assets.datasets.images.documents import IMAGE_DOCUMENTS
from assets.datasets.snapshots import pointer
from assets.datasets.texts.documents import TEXT_DOCUMENTS
from operations.references import folder_of, roots, stores
from recipes.dataset import DatasetRecipe
from resources.mlflow.registry import SNAPSHOT_TAG, Registry
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings.store import TrainingStore
from trainer.base.paths import CHECKPOINTS


@dataclass(frozen=True)
class TakedownReport:
    """What was taken down, and where it was until now."""

    dataset: str
    documents: tuple[str, ...]
    """What is left out from now on: file, `#`, and place in the file."""
    near: tuple[str, ...]
    """Documents that are nearly equal to these and were not taken down: one of them may be kept now instead."""
    snapshot: str
    """The dataset's snapshot without them."""
    snapshots: dict[str, str]
    """Snapshots that have one of them, by SHA-256, with the names of their datasets."""
    trainings: tuple[str, ...]
    """Trainings that were started on one of these snapshots, or from a checkpoint of such a training."""
    waiting: tuple[str, ...]
    """The same of trainings that wait to be started for the first time: they can still be stopped before they read
    it."""
    models: tuple[str, ...]
    """Registered versions that come from these."""


def take_down(
    recipe: DatasetRecipe,
    tiers: Tiers,
    tracking: Tracking,
    instance: dg.DagsterInstance,
    asked: Takedown,
    near: bool,
    report: Callable[[str], None],
) -> TakedownReport:
    """Take down what is asked for, also what is nearly equal to it with `near`, and build the dataset without it.

    Of `asked`, the identities are found here. Raises ValueError when nothing is meant by a part of it, and where
    records cannot be read; before anything is noted. Afterwards raises what a build raises, and MlflowException when
    the registry is away: the takedown is noted then, and asking for it again goes on.
    """
    durable, kind = tiers.durable_path, TEXT_DOCUMENTS if recipe.images is None else IMAGE_DOCUMENTS
    found = _meant(recipe, durable, kind, asked)
    similar = _nearly_equal(recipe, tiers, [each.name for each in found])
    if near and similar:
        found += takedown_search.meant(durable, recipe.name, kind, "", similar)
        similar = []
    seen = takedown_search.snapshots_with(durable, found, asked.url)
    takedowns.add(durable, _noted(asked, found), recipe.name)
    made = build(recipe, tiers, instance, report)
    ids, waiting = trained_on(tiers, seen)
    registry = Registry(tracking, durable) if tracking.is_there else None
    return TakedownReport(
        recipe.name,
        tuple(each.name for each in found),
        tuple(similar),
        made,
        seen,
        tuple(sorted(ids)),
        tuple(sorted(waiting)),
        tuple(sorted(_versions(registry, seen, ids))),
    )


def trained_on(tiers: Tiers, snapshots: Collection[str]) -> tuple[set[str], set[str]]:
    """The ids of the trainings, trials too, that were started on one of these snapshots, or from the weights of such a
    training, or as a branch of it; and of those that are wanted on one and wait to be started for the first time.

    Raises OSError and ValueError where a record cannot be read.
    """
    wanted = [store for root in roots(tiers) for store in stores(root) if _is_wanted(store)]
    found = {store.id for store in wanted if store.specification().snapshot in snapshots}
    parents = {store.id: set(_parents(store)) for store in wanted}
    while more := {id for id, of in parents.items() if id not in found and not found.isdisjoint(of)}:
        found |= more
    waiting = {store.id for store in wanted if store.id in found and store.read().claim is None}
    return found - waiting, waiting


def _is_wanted(store: TrainingStore) -> bool:
    """Whether a training was started, or will be without anybody asking once more."""
    facts = store.read()
    return facts.claim is not None or facts.wanted


def _meant(
    recipe: DatasetRecipe, durable: Path, kind: DocumentKind, asked: Takedown
) -> list[takedown_search.MeantDocument]:
    """The documents of the source that are meant. A URL of which the source has none any more is no mistake if a
    snapshot has one. Raises ValueError, naming it, for anything else of which there is none."""
    of_url = takedown_search.meant(durable, recipe.name, kind, asked.url, ()) if asked.url else []
    named = takedown_search.meant(durable, recipe.name, kind, "", asked.documents) if asked.documents else []
    names = {each.name for each in named} | {each.name.rpartition("#")[0] for each in named}
    lacking, hint = [each for each in asked.documents if each not in names], ""
    if asked.url and not of_url and not takedown_search.was_in(durable, recipe.name, asked.url):
        lacking.append(asked.url)
        if recipe.reading.metadata.url is None:
            hint = "; its recipe names no field with the URLs of documents (reading.metadata.url)"
    if lacking:
        what = ", ".join(lacking)
        raise ValueError(f"dataset {recipe.name}: found no document of {what} in its source, as it was read last{hint}")
    return list({each.name: each for each in (*of_url, *named)}.values())


def _noted(asked: Takedown, found: Collection[takedown_search.MeantDocument]) -> Takedown:
    names, identities = tuple(each.name for each in found), tuple(sorted({each.identity for each in found}))
    return Takedown(asked.url, names, identities, asked.why, asked.by, asked.time or time.time())


def _nearly_equal(recipe: DatasetRecipe, tiers: Tiers, documents: Collection[str]) -> list[str]:
    current = pointer.current(tiers.durable_path, recipe.name)
    return [] if current is None else takedown_search.nearly_equal(tiers.durable_path, current, documents)


def _parents(store: TrainingStore) -> Iterator[str]:
    """The trainings whose checkpoint a training begins with."""
    if (branch := store.specification().branch) is not None:
        yield branch.training
    parts = folder_of(store.terms().init).split("/")
    if parts[0] == CHECKPOINTS and len(parts) > 1:
        yield parts[1]


def _versions(registry: Registry | None, snapshots: Collection[str], trainings: Collection[str]) -> Iterator[str]:
    for version in registry.versions() if registry else ():
        if version.tags.get(SNAPSHOT_TAG) in snapshots or version.training in trainings:
            yield f"{version.model} {version.number}"

"""Takedown: documents leave a dataset for good, and it is said which snapshots, trainings and models have seen them.

The takedown is noted first, then the dataset is built: whatever interrupts this, the next build leaves them out. What
it would take down can be looked at before: an area of the web may have more than was meant.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from slipway.assets.datasets import takedown_search
from slipway.assets.datasets.assets import build
from slipway.assets.datasets.documents import takedowns
from slipway.assets.datasets.documents.takedowns import Takedown
from slipway.assets.datasets.images.documents import IMAGE_DOCUMENTS
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.takedown_search import MatchingDocument, TakedownSelection
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.operations.references import folder_of, stores, training_collections
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.mlflow.registry import SNAPSHOT_TAG, Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base.paths import CHECKPOINTS

MAX_LISTED = 10
"""Names that are asked for and not there which a message lists."""


@dataclass(frozen=True)
class TakedownRequest:
    """What somebody asks to take down, and why."""

    what: TakedownSelection
    why: str
    by: str
    near: bool = False
    """Whether what is nearly equal to these documents is meant too."""


@dataclass(frozen=True)
class TakedownReport:
    """What was taken down, or would be, and where it was until now."""

    dataset: str
    documents: tuple[str, ...]
    """What is left out from now on: file, `#`, and place in the file."""
    near: tuple[str, ...]
    """Documents that are nearly equal to these and were not taken down: one of them may be kept now instead."""
    snapshot: str
    """The dataset's snapshot without them; empty where they were only looked for."""
    snapshots: dict[str, str]
    """Snapshots that have one of them, by SHA-256, with the names of their datasets."""
    trainings: tuple[str, ...]
    """Trainings that were started on one of these snapshots, or from a checkpoint of such a training."""
    waiting: tuple[str, ...]
    """The same of trainings that wait to be started for the first time: they can still be stopped before they read
    it."""
    models: tuple[str, ...]
    """Registered versions that come from these."""
    under: dict[str, int] = field(default_factory=dict)
    """How many of the documents are in each area of the web that was asked for."""
    urls: dict[str, str] = field(default_factory=dict)
    """Where the documents come from, as far as it is known."""


@dataclass(frozen=True)
class _Matches:
    """The documents that a request means, those nearly equal to them, and the snapshots with one of them."""

    documents: list[MatchingDocument]
    near: list[str]
    snapshots: dict[str, str]


def outlook(recipe: DatasetRecipe, tiers: Tiers, tracking: Tracking, request: TakedownRequest) -> TakedownReport:
    """What `take_down` would take down, and what has seen it; nothing is noted. Raises as it does."""
    return _report(recipe, tiers, tracking, request, _find(recipe, tiers, request), "")


def take_down(
    recipe: DatasetRecipe,
    tiers: Tiers,
    tracking: Tracking,
    instance: dg.DagsterInstance,
    request: TakedownRequest,
    report: Callable[[str], None],
) -> TakedownReport:
    """Take down what is asked for, and build the dataset without it.

    Raises ValueError when nothing is meant by a part of it, and where records cannot be read; before anything is
    noted. Afterwards raises what a build raises, and MlflowException when the registry is away: the takedown is noted
    then, and asking for it again goes on.
    """
    matches = _find(recipe, tiers, request)
    takedowns.add(tiers.durable_path, noted(request, matches.documents), recipe.name)
    snapshot = build(recipe, tiers, instance, report)
    return _report(recipe, tiers, tracking, request, matches, snapshot)


def _find(recipe: DatasetRecipe, tiers: Tiers, request: TakedownRequest) -> _Matches:
    for area in request.what.under:
        takedowns.require_area(area, f"dataset {recipe.name}")
    durable = tiers.durable_path
    kind = TEXT_DOCUMENTS if recipe.images is None else IMAGE_DOCUMENTS
    documents = takedown_search.matching_documents(durable, recipe.name, kind, request.what)
    _refuse_unknown(recipe, durable, request.what, documents)
    similar = _nearly_equal(recipe, tiers, [document.name for document in documents])
    if request.near and similar:
        documents += takedown_search.matching_documents(
            durable, recipe.name, kind, TakedownSelection(documents=tuple(similar))
        )
        similar = []
    return _Matches(documents, similar, takedown_search.snapshots_with(durable, documents, request.what))


def _report(
    recipe: DatasetRecipe, tiers: Tiers, tracking: Tracking, request: TakedownRequest, matches: _Matches, snapshot: str
) -> TakedownReport:
    ids, waiting = trained_on(tiers, matches.snapshots)
    registry = Registry(tracking, tiers.durable_path) if tracking.is_there else None
    return TakedownReport(
        recipe.name,
        tuple(document.name for document in matches.documents),
        tuple(matches.near),
        snapshot,
        matches.snapshots,
        tuple(sorted(ids)),
        tuple(sorted(waiting)),
        tuple(sorted(_versions(registry, matches.snapshots, ids))),
        {area: sum(area in document.areas for document in matches.documents) for area in request.what.under},
        {document.name: document.url for document in matches.documents if document.url},
    )


def trained_on(tiers: Tiers, snapshots: Collection[str]) -> tuple[set[str], set[str]]:
    """The ids of the trainings, trials too, that were started on one of these snapshots, or from the weights of such a
    training, or as a branch of it; and of those that are wanted on one and wait to be started for the first time.

    Raises OSError and ValueError where a record cannot be read.
    """
    started = [store for root in training_collections(tiers) for store in stores(root) if _is_wanted(store)]
    ids = {store.id for store in started if store.specification().snapshot in snapshots}
    parents = {store.id: set(_parents(store)) for store in started}
    while more := {id for id, of in parents.items() if id not in ids and not ids.isdisjoint(of)}:
        ids |= more
    waiting = {store.id for store in started if store.id in ids and store.read().claim is None}
    return ids - waiting, waiting


def _is_wanted(store: TrainingStore) -> bool:
    """Whether a training was started, or will be without anybody asking once more."""
    facts = store.read()
    return facts.claim is not None or facts.should_run


def _refuse_unknown(
    recipe: DatasetRecipe, durable: Path, selection: TakedownSelection, documents: Collection[MatchingDocument]
) -> None:
    """Raise ValueError, naming what is asked for and no document of the source is. A URL, or an area, of which the
    source has none any more is no mistake if a snapshot has one."""
    names = {document.name for document in documents} | {document.name.rpartition("#")[0] for document in documents}
    known = {document.url for document in documents} | {area for document in documents for area in document.areas}
    urls = [url for url in (*selection.urls, *selection.under) if url not in known]
    if urls:
        before = takedown_search.were_in(durable, recipe.name, selection)
        urls = [url for url in urls if url not in before]
    unknown = [*(name for name in selection.documents if name not in names), *urls]
    if not unknown:
        return
    hint = "; to keep out what never was in it: cleaning.urls.blocked in its recipe" if urls else ""
    if urls and recipe.reading.metadata.url is None:
        hint = "; its recipe names no field with the URLs of documents (reading.metadata.url)"
    listing = ", ".join(unknown[:MAX_LISTED]) + (
        f" and {len(unknown) - MAX_LISTED:,} more" if len(unknown) > MAX_LISTED else ""
    )
    raise ValueError(f"dataset {recipe.name}: found no document of {listing} in its source, as it was read last{hint}")


def noted(request: TakedownRequest, documents: Collection[MatchingDocument]) -> Iterator[Takedown]:
    """What is noted of a request: a takedown for each URL and each area, and one for all other documents."""
    of_url = dict[str, list[MatchingDocument]]()
    of_area = dict[str, list[MatchingDocument]]()
    for document in documents:
        of_url.setdefault(document.url, []).append(document)
        for area in document.areas:
            of_area.setdefault(area, []).append(document)
    others = [document for document in documents if not document.areas and document.url not in request.what.urls]
    for url in dict.fromkeys(request.what.urls):
        yield _takedown(request, of_url.get(url, []), url=url)
    for area in dict.fromkeys(request.what.under):
        yield _takedown(request, of_area.get(area, []), under=area)
    if others:
        yield _takedown(request, others)


def _takedown(
    request: TakedownRequest, documents: Collection[MatchingDocument], url: str = "", under: str = ""
) -> Takedown:
    names = tuple(document.name for document in documents)
    identities = tuple(sorted({document.identity for document in documents}))
    return Takedown(url, names, identities, request.why, request.by, time.time(), under)


def _nearly_equal(recipe: DatasetRecipe, tiers: Tiers, documents: Collection[str]) -> list[str]:
    current = pointer.current(tiers.durable_path, recipe.name)
    return [] if current is None else takedown_search.nearly_equal(tiers.durable_path, current, documents)


def _parents(store: TrainingStore) -> Iterator[str]:
    """The trainings whose checkpoint a training begins with."""
    if (branch := store.specification().branch) is not None:
        yield branch.training
    parts = folder_of(store.run_policy().init).split("/")
    if parts[0] == CHECKPOINTS and len(parts) > 1:
        yield parts[1]


def _versions(registry: Registry | None, snapshots: Collection[str], trainings: Collection[str]) -> Iterator[str]:
    for version in registry.versions() if registry else ():
        if version.tags.get(SNAPSHOT_TAG) in snapshots or version.training in trainings:
            yield f"{version.model} {version.number}"

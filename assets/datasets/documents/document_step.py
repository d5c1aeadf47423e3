"""The step that makes a dataset's documents table, once for the same inputs.

Its cost depends on the changes since the last build: only new and changed files of the source are read.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

from slipway.assets.datasets.building.build import Build, DocumentKind, begin_build
from slipway.assets.datasets.building.build_log import BuildLog, BuildPhase
from slipway.assets.datasets.building.step_cache import Record, StepCache
from slipway.assets.datasets.documents import document_table, extraction, quarantine, takedowns
from slipway.assets.datasets.documents.extracts import Extracts
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.reading.sources import SourceListing
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.objects.origin import Unreachable

STEP = "documents"
COMPARED = {"kept_duplicate", "near_duplicates", "decontamination"}
"""The fields of a recipe's cleaning that decide the comparison of documents."""
STILL_SECONDS = 10.0
"""Seconds that a build waits for a corpus to which a process is writing."""


def make(recipe: DatasetRecipe, kind: DocumentKind, durable: Path, log: BuildLog) -> Record:
    """The documents table of the present source.

    Raises ValueError as `sources.list_source` and `document_table.write` do, and OSError when a disk or a server fails.
    """
    sources.require(recipe)  # check this before writing anything
    with begin_build(recipe, kind, durable, log) as build:
        listing = _still_source(build)
        quarantine.note_left_out(build, listing)
        try:
            extracts = extraction.extract(build, listing)
        except Unreachable as error:
            raise ConnectionError(f"dataset {recipe.name}: {error}") from error

        def write() -> tuple[dict[str, Any], list[Path]]:
            table = document_table.write(build, extracts)
            return dataclasses.asdict(table), [document_table.path(durable, table.blake3), extracts.index]

        return build.once(STEP, _inputs(recipe, kind, listing, extracts, durable), write)


def recall(recipe: DatasetRecipe, kind: DocumentKind, durable: Path) -> Record | None:
    """The recorded table of the present source, if there is one. Only the source's listing is read.

    Raises ValueError as `sources.list_source` does.
    """
    listing = sources.list_source(recipe)
    extracts = extraction.recall(recipe, kind, listing, durable)
    if extracts is None:
        return None
    return StepCache(durable, recipe.name).recall(STEP, _inputs(recipe, kind, listing, extracts, durable))


def latest(recipe: DatasetRecipe, durable: Path) -> Record:
    """The record of the last table. Raises ValueError if there is none."""
    return StepCache(durable, recipe.name).last_made(STEP)


def index_of(record: Record, durable: Path) -> Path:
    """The index of the extracts that the table of a record was made from."""
    return next(durable / file for file in record.files if Path(file).parent.name == "extracts")


def dataset_of(record: Record) -> str:
    """The dataset that the table of a record belongs to."""
    return next(Path(file).parts[1] for file in record.files if Path(file).parent.name == "extracts")


def _still_source(build: Build) -> SourceListing:
    """The listing of the source, after its files have not changed for a moment, or after `STILL_SECONDS` at the latest.

    A file that changes while it is read is refused, and a file that has just changed is read again in the next build.
    """
    deadline = time.monotonic() + STILL_SECONDS
    while True:
        phase = BuildPhase(build.log, "listing the source", None, "files")
        listing = sources.list_source(build.recipe, phase, build.scratch)
        if listing.settled or time.monotonic() > deadline:
            return listing
        time.sleep(0.2)


def _inputs(
    recipe: DatasetRecipe, kind: DocumentKind, listing: SourceListing, extracts: Extracts, durable: Path
) -> dict[str, Any]:
    """Everything that decides the table's bytes."""
    return {
        "version": kind.table_key,
        "source": {
            "kind": listing.kind,
            "description": listing.description,
            "digest": extracts.digest,
            "files": extracts.files,
            "bytes": extracts.bytes,
            "left_out": listing.left_out,
        },
        "extraction": extraction.configuration(recipe, kind),
        "rules": recipe.cleaning.thresholds(),
        "comparison": recipe.cleaning.model_dump(mode="json", include=COMPARED),
        "takedowns": takedowns.digest_of(takedowns.read(durable, recipe.name)),
        "evaluation_sets": kind.evaluation_sets(recipe),
        "validation": recipe.split.validation,
    }

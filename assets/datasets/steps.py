"""Steps: documents, tokenizer and snapshot of a dataset, each made once for the same inputs.

Each step takes what the one before it made last, so that the three can be made at different times. What a
step costs is in proportion to what changed since the one before: only new and changed files are read, only new
documents are encoded, only shards around a change are written.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

from assets.datasets import comparison, documents, extraction, snapshot, sources, tokenizer
from assets.datasets.documents import Documents
from assets.datasets.extraction import Extracts, Report
from assets.datasets.images import table as images_table
from assets.datasets.memo import Memo, Record
from assets.datasets.sources import Listing
from assets.datasets.workshop import workshop
from recipes.dataset import Dataset
from trainer import atomic, digest, shards, snapshots
from trainer.origins import Unreachable

STILL_SECONDS = 10.0
"""How long a build waits for a corpus that somebody is writing to."""


def quiet(_: str) -> None:
    """A report that nobody reads."""


def make_documents(recipe: Dataset, durable: Path, report: Report = quiet) -> Record:
    """The documents table of the present source, of texts or of images.

    Raises ValueError as `sources.list_source` and `documents.write` do, and OSError when a disk or a server fails.
    """
    listing = _still(recipe)
    with workshop(durable, recipe.name) as shop:
        try:
            extracts = extraction.extract(recipe, listing, durable, shop, report)
        except Unreachable as error:
            raise ConnectionError(f"dataset {recipe.name}: {error}") from error

        def make() -> tuple[dict[str, Any], list[Path]]:
            write = documents.write if recipe.images is None else images_table.write
            table = write(recipe, extracts, durable, shop)
            return dataclasses.asdict(table), [documents.table_path(durable, table.blake3), extracts.index]

        return Memo(durable, recipe.name).once("documents", _documents_inputs(recipe, listing, extracts), shop, make)


def make_tokenizer(recipe: Dataset, durable: Path) -> Record:
    """The tokenizer of the recipe: once trained, it is kept until the recipe asks for another.

    It is trained on a sample of the train split of the latest documents. Raises ValueError when there are none,
    and for a `tokenizer.file` that is not one.
    """
    table = documents.table_path(durable, latest_documents(recipe, durable).blake3)

    with workshop(durable, recipe.name) as shop:

        def make() -> tuple[dict[str, Any], list[Path]]:
            if recipe.tokenizer.file is None:
                texts = tokenizer.sample(table, extracts_of(recipe, durable), recipe.tokenizer.megabytes, durable, shop)
                data = tokenizer.train(texts, recipe.tokenizer.vocab_size)
            else:
                data = tokenizer.existing(Path(recipe.tokenizer.file))
            made = tokenizer.write(durable, data, shop)
            return dataclasses.asdict(made), [tokenizer.path(durable, made.sha256)]

        return Memo(durable, recipe.name).once("tokenizer", _tokenizer_inputs(recipe), shop, make)


def make_snapshot(recipe: Dataset, durable: Path, report: Report = quiet) -> Record:
    """The snapshot of the latest documents and tokenizer. Raises ValueError when either is not made yet."""
    record, made = latest(recipe, durable, "documents"), latest_tokenizer(recipe, durable)
    plan = snapshot.Plan(
        dataset=recipe.name,
        recipe_sha256=content_sha256(recipe),
        source=record.inputs["source"],
        table=Documents(**record.result),
        tokenizer=made,
        shard_tokens=recipe.shards.tokens,
    )

    with workshop(durable, recipe.name) as shop:

        def make() -> tuple[dict[str, Any], list[Path]]:
            parent = parent_of(recipe, durable, made)
            built = snapshot.build(plan, extracts_of(recipe, durable), parent, durable, shop, report)
            paths = [shards.shard_path(durable, shard) for shard in built.shards()]
            return {"sha256": built.sha256}, [shards.manifest_path(durable, built.sha256), *paths]

        return Memo(durable, recipe.name).once("snapshot", _snapshot_inputs(plan), shop, make)


def parent_of(recipe: Dataset, durable: Path, made: shards.Tokenizer) -> shards.Snapshot | None:
    """The snapshot made last, if it is in the tokens of this tokenizer: the one to share shards with."""
    record = Memo(durable, recipe.name).latest("snapshot")
    parent = None if record is None else snapshots.read(durable, record.result["sha256"])
    return parent if isinstance(parent, shards.Snapshot) and parent.tokenizer == made else None


def latest_documents(recipe: Dataset, durable: Path) -> Documents:
    """The documents table made last. Raises ValueError when there is none."""
    return Documents(**latest(recipe, durable, "documents").result)


def latest_tokenizer(recipe: Dataset, durable: Path) -> shards.Tokenizer:
    """The tokenizer made last. Raises ValueError when there is none."""
    return shards.Tokenizer(**latest(recipe, durable, "tokenizer").result)


def up_to_date(durable: Path, recipe: Dataset) -> str | None:
    """The SHA-256 of the snapshot that recipe and source give now, if the dataset points at it already.

    Nothing is read but the source's listing. Raises ValueError as `sources.list_source` does.
    """
    memo, listing = Memo(durable, recipe.name), sources.list_source(recipe)
    extracts = extraction.recall(recipe, listing, durable)
    if extracts is None:
        return None
    table = memo.recall("documents", _documents_inputs(recipe, listing, extracts))
    made = memo.recall("tokenizer", _tokenizer_inputs(recipe))
    if table is None or made is None:
        return None
    plan = snapshot.Plan(
        dataset=recipe.name,
        recipe_sha256=content_sha256(recipe),
        source=table.inputs["source"],
        table=Documents(**table.result),
        tokenizer=shards.Tokenizer(**made.result),
        shard_tokens=recipe.shards.tokens,
    )
    built = memo.recall("snapshot", _snapshot_inputs(plan))
    sha256 = snapshot.current(durable, recipe.name)
    return sha256 if built is not None and built.result["sha256"] == sha256 else None


def _still(recipe: Dataset) -> Listing:
    """The source, listed when its files have not changed for a moment; after a while, as it is.

    A file that is written while it is read is refused, and one that changed just now is read again next time.
    """
    deadline = time.monotonic() + STILL_SECONDS
    while True:
        listing = sources.list_source(recipe)
        if all(file.settled for file in listing.files) or time.monotonic() > deadline:
            return listing
        time.sleep(0.2)


def latest(recipe: Dataset, durable: Path, step: str) -> Record:
    """What a step made last. Raises ValueError when it is not there."""
    record = Memo(durable, recipe.name).latest(step)
    if record is None:
        raise ValueError(f"dataset {recipe.name}: its {step} is not made, or its files are gone: materialise it first")
    return record


def extracts_of(recipe: Dataset, durable: Path) -> Path:
    """The index of the texts of the latest documents."""
    files = latest(recipe, durable, "documents").files
    return next(durable / file for file in files if Path(file).parent.name == "extracts")


def _documents_inputs(recipe: Dataset, listing: Listing, extracts: Extracts) -> dict[str, Any]:
    return {
        "version": documents.VERSION if recipe.images is None else f"images/{images_table.VERSION}",
        "source": {
            "kind": listing.kind,
            "description": listing.description,
            "digest": extracts.digest,
            "files": extracts.files,
            "bytes": extracts.bytes,
            "left_out": listing.left_out,
        },
        "extraction": extraction.configuration(recipe),
        "evaluation_sets": comparison.digest_of_evaluation_sets(recipe.cleaning),
        "validation": recipe.split.validation,
    }


def _tokenizer_inputs(recipe: Dataset) -> dict[str, Any]:
    """Not the documents: a dataset that grows keeps its tokenizer, and with it its shards."""
    wanted = recipe.tokenizer.model_dump(mode="json")
    file = wanted.pop("file")
    if file is not None:
        wanted = {"file": digest.of_file(Path(file))}
    return {"version": tokenizer.VERSION, **wanted}


def _snapshot_inputs(plan: snapshot.Plan) -> dict[str, Any]:
    return {
        "version": snapshot.VERSION,
        "recipe": plan.recipe_sha256,
        "source": plan.source,
        "documents": plan.table.blake3,
        "tokenizer": plan.tokenizer.sha256,
        "shards": plan.shard_tokens,
    }


def content_sha256(recipe: Dataset) -> str:
    return digest.sha256(atomic.canonical_json(recipe.content()))

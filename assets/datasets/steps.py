"""Steps: documents, tokenizer and snapshot of a dataset, each made once for the same inputs.

Each step takes what the one before it made last, so that the three can be made at different times: a dataset
whose documents are made anew without its tokenizer keeps the tokenizer it had.
"""

import dataclasses
from pathlib import Path
from typing import Any

from assets.datasets import documents, snapshot, sources, tokenizer
from assets.datasets.documents import Documents
from assets.datasets.memo import Memo, Record
from recipes.schema import Dataset
from trainer import atomic, digest, shards


def make_documents(recipe: Dataset, durable: Path) -> Record:
    """The documents table of the present source. Raises ValueError as `sources.list_source` does."""
    source = sources.list_source(recipe)

    def make() -> tuple[dict[str, Any], list[Path]]:
        table = documents.write(source, recipe.split.validation, durable)
        return dataclasses.asdict(table), [documents.table_path(durable, table.blake3)]

    return Memo(durable, recipe.name).once("documents", _documents_inputs(recipe, source.provenance()), make)


def make_tokenizer(recipe: Dataset, durable: Path) -> Record:
    """The tokenizer of the train split of the latest documents. Raises ValueError when there are none."""
    table = latest_documents(recipe, durable)

    def make() -> tuple[dict[str, Any], list[Path]]:
        texts = documents.texts(documents.table_path(durable, table.blake3), "train")
        made = tokenizer.write(durable, tokenizer.train(texts, recipe.tokenizer.vocab_size))
        return dataclasses.asdict(made), [tokenizer.path(durable, made.sha256)]

    return Memo(durable, recipe.name).once("tokenizer", _tokenizer_inputs(recipe, table), make)


def make_snapshot(recipe: Dataset, durable: Path) -> Record:
    """The snapshot of the latest documents and tokenizer. Raises ValueError when either is not made yet."""
    record, made = _latest(recipe, durable, "documents"), latest_tokenizer(recipe, durable)
    table = Documents(**record.result)

    def make() -> tuple[dict[str, Any], list[Path]]:
        built = snapshot.build(
            dataset=recipe.name,
            recipe_sha256=_content_sha256(recipe),
            source=record.inputs["source"],
            table=table,
            tokenizer=made,
            encoding=tokenizer.load(durable, made.sha256),
            shard_counts=_shard_counts(recipe),
            durable=durable,
        )
        paths = [shards.shard_path(durable, shard) for shard in built.shards()]
        return {"sha256": built.sha256}, [shards.manifest_path(durable, built.sha256), *paths]

    inputs = _snapshot_inputs(recipe, record.inputs["source"], table, made)
    return Memo(durable, recipe.name).once("snapshot", inputs, make)


def latest_documents(recipe: Dataset, durable: Path) -> Documents:
    """The documents table made last. Raises ValueError when there is none."""
    return Documents(**_latest(recipe, durable, "documents").result)


def latest_tokenizer(recipe: Dataset, durable: Path) -> shards.Tokenizer:
    """The tokenizer made last. Raises ValueError when there is none."""
    return shards.Tokenizer(**_latest(recipe, durable, "tokenizer").result)


def up_to_date(durable: Path, recipe: Dataset) -> str | None:
    """The SHA-256 of the snapshot that recipe and source give now, if the dataset points at it already.

    Nothing is built; the source is listed and hashed. Raises ValueError as `sources.list_source` does.
    """
    memo, provenance = Memo(durable, recipe.name), sources.list_source(recipe).provenance()
    table = memo.recall("documents", _documents_inputs(recipe, provenance))
    if table is None:
        return None
    rows = Documents(**table.result)
    made = memo.recall("tokenizer", _tokenizer_inputs(recipe, rows))
    if made is None:
        return None
    built = memo.recall("snapshot", _snapshot_inputs(recipe, provenance, rows, shards.Tokenizer(**made.result)))
    sha256 = snapshot.current(durable, recipe.name)
    return sha256 if built is not None and built.result["sha256"] == sha256 else None


def _latest(recipe: Dataset, durable: Path, step: str) -> Record:
    record = Memo(durable, recipe.name).latest(step)
    if record is None:
        raise ValueError(f"dataset {recipe.name}: its {step} is not made, or its files are gone: materialise it first")
    return record


def _documents_inputs(recipe: Dataset, provenance: dict[str, Any]) -> dict[str, Any]:
    return {"version": documents.VERSION, "source": provenance, "validation": recipe.split.validation}


def _tokenizer_inputs(recipe: Dataset, table: Documents) -> dict[str, Any]:
    return {"version": tokenizer.VERSION, "documents": table.blake3, "vocab_size": recipe.tokenizer.vocab_size}


def _snapshot_inputs(
    recipe: Dataset, provenance: dict[str, Any], table: Documents, made: shards.Tokenizer
) -> dict[str, Any]:
    return {
        "version": snapshot.VERSION,
        "recipe": _content_sha256(recipe),
        "source": provenance,
        "documents": table.blake3,
        "tokenizer": made.sha256,
        "shards": _shard_counts(recipe),
    }


def _shard_counts(recipe: Dataset) -> dict[str, int]:
    return {"train": recipe.shards.train, "validation": recipe.shards.validation}


def _content_sha256(recipe: Dataset) -> str:
    return digest.sha256(atomic.canonical_json(recipe.content()))


def in_tokens_of(described: shards.Snapshot, other: str, durable: Path) -> str:
    """The snapshot of `described`'s documents in the tokens of the snapshot `other`; returns its SHA-256.

    For comparing models of different tokenizers on the same text. Raises ValueError when `other` is gone.
    """
    spoken = shards.read_manifest(durable, other).tokenizer
    if spoken == described.tokenizer:
        return described.sha256
    documents_path = documents.table_path(durable, described.documents["blake3"])
    table = Documents(
        blake3=described.documents["blake3"],
        file_bytes=documents_path.stat().st_size,
        rows=described.documents["rows"],
        duplicates=described.documents["duplicates"],
    )
    built = snapshot.build(
        dataset=described.dataset,
        recipe_sha256=described.recipe,
        source=described.source,
        table=table,
        tokenizer=spoken,
        encoding=tokenizer.load(durable, spoken.sha256),
        shard_counts={name: len(split.shards) for name, split in described.splits.items()},
        durable=durable,
    )
    return built.sha256

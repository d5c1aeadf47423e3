"""Texts: what the lane of a dataset of texts does, and what must hold of its snapshots."""

from pathlib import Path

from assets.datasets import checks, documents, metadata, snapshot, steps, tokenizer
from assets.datasets.content import Content, Outcome
from recipes.dataset import Dataset
from resources import warehouse
from trainer import shards

CHECKS = {
    "no_empty_split": "Both splits hold documents and tokens.",
    "no_document_in_both_splits": "No text is kept in the train and in the validation split.",
    "tokens_decode_to_the_text": f"{checks.SAMPLE} documents decode back to texts of the documents table.",
    "no_drift": "Lengths and languages are distributed as in the parent snapshot, within the recipe's limit.",
}


def _outcomes(recipe: Dataset, made: shards.Snapshot, parent: shards.Snapshot | None, durable: Path) -> list[Outcome]:
    table = documents.table_path(durable, made.documents["blake3"])
    return [_splits(made), disjoint(table), _decodes(made, table, durable), _steady(recipe, made, parent, durable)]


def _splits(made: shards.Snapshot) -> Outcome:
    empty = checks.empty_splits(made)
    counts = {f"{name}_documents": split.documents for name, split in made.splits.items()}
    return Outcome(not empty, {"empty_splits": len(empty), **counts})


def disjoint(table: Path) -> Outcome:
    """Whether nothing is kept on both sides of the split; of any documents table."""
    shared = warehouse.documents_in_both_splits(table)
    return Outcome(shared == 0, {"documents_in_both": shared})


def _decodes(made: shards.Snapshot, table: Path, durable: Path) -> Outcome:
    encoding = tokenizer.load(durable, made.tokenizer.sha256)
    sampled, wrong = checks.undecodable(made, durable, encoding, table)
    return Outcome(wrong == 0 and sampled > 0, {"documents_decoded": sampled, "documents_wrong": wrong})


def _steady(recipe: Dataset, made: shards.Snapshot, parent: shards.Snapshot | None, durable: Path) -> Outcome:
    """Whether lengths and languages are those of the parent; a first snapshot has nothing to drift from."""
    tables = [documents.table_path(durable, each.documents["blake3"]) for each in (parent, made) if each is not None]
    if len(tables) < 2 or not tables[0].exists():
        return Outcome(True, {"note": "there is no parent snapshot to compare with"})
    found = checks.drift(*(warehouse.statistics(table, top=1000) for table in tables))
    return Outcome(max(found.values()) <= recipe.checks.drift, {**found, "limit": recipe.checks.drift})


TEXTS = Content(
    versions={"documents": documents.VERSION, "snapshot": snapshot.VERSION},
    shards_of="token",
    checks=CHECKS,
    read=shards.read_manifest,
    make_snapshot=steps.make_snapshot,
    outcomes=_outcomes,
    of_documents=metadata.of_documents,
    of_snapshot=metadata.of_snapshot,
)

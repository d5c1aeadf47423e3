"""Checks: what must hold of a snapshot of texts before a dataset points at it, read back from the durable tier.

Nothing here relies on what the steps that wrote the shards reported.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tiktoken

from assets.datasets.documents import document_table
from assets.datasets.snapshots.outcomes import Outcome, drift_is_small, splits_are_disjoint, table_of
from assets.datasets.texts import tokenizer
from recipes.dataset import DatasetRecipe
from resources import warehouse
from resources.warehouse import stability_index
from trainer.base import digest
from trainer.data import shards

SAMPLE = 20
"""Documents that are decoded and compared with the table, spread evenly over the shards."""
CHECKS = {
    "no_empty_split": "Both splits hold documents and tokens.",
    "no_document_in_both_splits": "No text is kept in the train and in the validation split.",
    "tokens_decode_to_the_text": f"{SAMPLE} documents decode back to texts of the documents table.",
    "no_drift": "Lengths and languages are distributed as in the parent snapshot, within the recipe's limit.",
}


def outcomes(
    recipe: DatasetRecipe, made: shards.TextSnapshot, parent: shards.TextSnapshot | None, durable: Path
) -> list[Outcome]:
    """The outcomes of `CHECKS`, in their order."""
    table = table_of(made, durable)
    return [
        _no_split_is_empty(made),
        splits_are_disjoint(table),
        _tokens_decode(made, table, durable),
        drift_is_small(recipe, made, parent, durable, drift),
    ]


def _no_split_is_empty(made: shards.TextSnapshot) -> Outcome:
    empty = empty_splits(made)
    counts = {f"{name}_documents": split.documents for name, split in made.splits.items()}
    return Outcome(not empty, {"empty_splits": len(empty), **counts})


def _tokens_decode(made: shards.TextSnapshot, table: Path, durable: Path) -> Outcome:
    encoding = tokenizer.load(durable, made.tokenizer.sha256)
    sampled, wrong = undecodable(made, durable, encoding, table)
    return Outcome(wrong == 0 and sampled > 0, {"documents_decoded": sampled, "documents_wrong": wrong})


def empty_splits(snapshot: shards.TextSnapshot) -> list[str]:
    """The splits without a document or without a token."""
    return [name for name, split in snapshot.splits.items() if not split.documents or not split.tokens]


def undecodable(snapshot: shards.TextSnapshot, tier: Path, encoding: tiktoken.Encoding, table: Path) -> tuple[int, int]:
    """How many documents of a fixed sample were decoded, and how many of them are not texts of the table.

    A document must end with the end-of-document token, and the tokens before it must decode to a text that the
    documents table keeps in the same split.
    """
    sampled, end = list(_sample(snapshot, tier)), snapshot.tokenizer.end_of_document
    hashes = [_text_hash(encoding, tokens[:-1]) for _, tokens in sampled]
    known = document_table.splits_of(table, hashes)
    wrong = sum(
        not (tokens[-1] == end and known.get(blake3) == name)
        for (name, tokens), blake3 in zip(sampled, hashes, strict=True)
    )
    return len(sampled), wrong


def _text_hash(encoding: tiktoken.Encoding, tokens: npt.NDArray[Any]) -> str:
    """The BLAKE3 of the text, or a word that is no hash when a token stands for nothing."""
    try:
        return digest.of_bytes(encoding.decode_bytes(tokens.tolist()))
    except KeyError:
        return "undecodable"


def drift(before: Path, after: Path) -> dict[str, float]:
    """The population stability index of documents by length and by language, from one table to another."""
    old, new = (warehouse.statistics(table, top=1000) for table in (before, after))
    languages = [[(each.name, each.documents) for each in found.languages] for found in (old, new)]
    return {"lengths": stability_index(old.lengths, new.lengths), "languages": stability_index(*languages)}


def _sample(snapshot: shards.TextSnapshot, tier: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Documents by number, at even distances over all splits: the split's name and the tokens."""
    total = sum(split.documents for split in snapshot.splits.values())
    wanted = set(np.linspace(0, total - 1, min(SAMPLE, total), dtype=int).tolist())
    begin = 0
    for name, split in snapshot.splits.items():
        for shard in split.shards:
            here = sorted(number - begin for number in wanted if begin <= number < begin + shard.documents)
            if here:
                tokens, offsets = shards.open_shard(tier, shard, snapshot.dtype)
                yield from ((name, tokens[offsets[number] : offsets[number + 1]]) for number in here)
            begin += shard.documents

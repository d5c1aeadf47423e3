"""Checks of a snapshot of texts, read back from the durable tier, before a dataset points at it.

They do not rely on the reports of the steps that wrote the shards.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.building.build_log import BuildLog, quiet
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.snapshots import losses
from slipway.assets.datasets.snapshots.outcomes import (
    Outcome,
    drift_is_small,
    enough_is_kept,
    in_turn,
    no_split_is_empty,
    splits_are_disjoint,
    table_of,
    volume_is_kept,
)
from slipway.assets.datasets.texts import tokenizer
from slipway.assets.datasets.texts.encoders import TextEncoding
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import warehouse
from slipway.resources.warehouse import stability_index
from slipway.trainer.base import digest
from slipway.trainer.data import shards

SAMPLE = 20
"""The number of evenly spaced documents to decode and compare with the table."""
CHECKS = {
    "no_empty_split": "Both splits contain documents and tokens.",
    "no_document_in_both_splits": "No text is in both the train and the validation split.",
    "tokens_decode_to_the_text": f"A sample of {SAMPLE} documents decodes back to texts of the documents table.",
    "enough_is_kept": "The share of documents that cleaning left out is within the recipe's limit.",
    "few_are_contaminated": "The share of documents that contain evaluation texts is within the recipe's limit.",
    "no_shrinkage": "The snapshot has not shrunk, compared with its parent, by more than the recipe allows.",
    "no_drift": "The distributions of lengths and languages have not changed, compared with the parent, by more than "
    "the recipe allows.",
    **losses.CHECKS,
}


def outcomes(
    recipe: DatasetRecipe,
    snapshot: shards.TextSnapshot,
    parent: shards.TextSnapshot | None,
    durable: Path,
    log: BuildLog = quiet,
) -> list[Outcome]:
    """The outcomes of `CHECKS`, in their order."""
    table = table_of(snapshot, durable)
    checks: list[Callable[[], Outcome]] = [
        lambda: _no_split_is_empty(recipe, snapshot),
        lambda: splits_are_disjoint(table),
        lambda: _tokens_decode(snapshot, table, durable),
        lambda: enough_is_kept(recipe, table),
        lambda: few_are_contaminated(recipe, table),
        lambda: volume_is_kept(recipe, snapshot, parent, durable),
        lambda: drift_is_small(recipe, snapshot, parent, durable, drift),
        lambda: losses.removals_are_steady(recipe, snapshot, parent, durable),
        lambda: losses.groups_are_kept("language", recipe, snapshot, parent, durable),
        lambda: losses.groups_are_kept("source", recipe, snapshot, parent, durable),
    ]
    return in_turn(checks, log)


def _no_split_is_empty(recipe: DatasetRecipe, snapshot: shards.TextSnapshot) -> Outcome:
    empty = empty_splits(snapshot)
    counts = {f"{name}_documents": split.documents for name, split in snapshot.splits.items()}
    documents = {name: 0 if name in empty else split.documents for name, split in snapshot.splits.items()}
    return no_split_is_empty(recipe, documents, {"empty_splits": len(empty), **counts})


def _tokens_decode(snapshot: shards.TextSnapshot, table: Path, durable: Path) -> Outcome:
    encoding = tokenizer.load(durable, snapshot.tokenizer.sha256)
    sampled, wrong = undecodable(snapshot, durable, encoding, table)
    documents = sum(split.documents for split in snapshot.splits.values())
    return Outcome(
        wrong == 0 and (sampled > 0 or documents == 0), {"documents_decoded": sampled, "documents_wrong": wrong}
    )


def few_are_contaminated(recipe: DatasetRecipe, table: Path) -> Outcome:
    """Check that the share of documents left out because of evaluation texts is within the recipe's limit. A large
    share means that the set consists of common phrases, or that the corpus contains the set."""
    removals = [removal for removal in warehouse.removals(table) if removal.reason == "contaminated"]
    remaining = warehouse.kept_total(table).documents
    contaminated = sum(removal.documents for removal in removals)
    share = contaminated / max(remaining + contaminated, 1)
    limit = recipe.checks.contaminated
    evidence = {"because": removals[0].because} if removals and removals[0].because else {}
    return Outcome(share <= limit, {"share_contaminated": share, "limit": limit, **evidence})


def empty_splits(snapshot: shards.TextSnapshot) -> list[str]:
    """The splits without a document or without a token."""
    return [name for name, split in snapshot.splits.items() if not split.documents or not split.tokens]


def undecodable(snapshot: shards.TextSnapshot, tier: Path, encoding: TextEncoding, table: Path) -> tuple[int, int]:
    """The number of documents in a fixed sample, and the number of those that are not texts of the table.

    A document must end with the end-of-document token, and the tokens before it must decode to a text that the
    documents table keeps in the same split.
    """
    sampled = list(sample(snapshot, tier))
    end = snapshot.tokenizer.end_of_document
    hashes = [_text_hash(encoding, tokens[:-1]) for _, tokens in sampled]
    known = document_table.splits_of(table, hashes)
    wrong = sum(
        not (tokens[-1] == end and known.get(blake3) == name)
        for (name, tokens), blake3 in zip(sampled, hashes, strict=True)
    )
    return len(sampled), wrong


def _text_hash(encoding: TextEncoding, tokens: npt.NDArray[Any]) -> str:
    """The BLAKE3 of the text, or a word that is not a hash if a token has no meaning."""
    try:
        return digest.of_bytes(encoding.decode_bytes(tokens.tolist()))
    except KeyError:
        return "undecodable"


def drift(before: Path, after: Path) -> dict[str, float]:
    """The population stability index of documents by length and by language, from one table to another."""
    old, new = (warehouse.statistics(table, top=1000) for table in (before, after))
    languages = [
        [(language.name, language.documents) for language in statistics.languages] for statistics in (old, new)
    ]
    return {"lengths": stability_index(old.lengths, new.lengths), "languages": stability_index(*languages)}


def sample(snapshot: shards.TextSnapshot, tier: Path, most: int = SAMPLE) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Evenly spaced documents over all splits: the split's name and the tokens."""
    total = sum(split.documents for split in snapshot.splits.values())
    numbers = set(np.linspace(0, total - 1, min(most, total), dtype=int).tolist())
    begin = 0
    for name, split in snapshot.splits.items():
        for shard in split.shards:
            in_shard = sorted(number - begin for number in numbers if begin <= number < begin + shard.documents)
            if in_shard:
                tokens, offsets = shards.open_shard(tier, shard, snapshot.dtype)
                yield from ((name, tokens[offsets[number] : offsets[number + 1]]) for number in in_shard)
            begin += shard.documents

"""Checks: what must hold of a snapshot before a dataset points at it, read back from what lies on the disk.

Each gives plain numbers; nothing here trusts what the steps that wrote the shards believed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tiktoken

from assets.datasets import documents
from resources.warehouse import Statistics, stability_index
from trainer import digest, shards

SAMPLE = 20
"""Documents that are decoded and compared with the table, spread evenly over the shards."""


def empty_splits(snapshot: shards.Snapshot) -> list[str]:
    """The splits without a document or without a token."""
    return [name for name, split in snapshot.splits.items() if not split.documents or not split.tokens]


def undecodable(snapshot: shards.Snapshot, tier: Path, encoding: tiktoken.Encoding, table: Path) -> tuple[int, int]:
    """How many documents of a fixed sample were decoded, and how many of them are not texts of the table.

    A document must end with the end-of-document token, and what stands before it must decode to a text that the
    documents table keeps in the same split.
    """
    sampled, end = list(_sample(snapshot, tier)), snapshot.tokenizer.end_of_document
    hashes = [_text_hash(encoding, tokens[:-1]) for _, tokens in sampled]
    known = documents.splits_of(table, hashes)
    wrong = sum(
        not (tokens[-1] == end and known.get(blake3) == name)
        for (name, tokens), blake3 in zip(sampled, hashes, strict=True)
    )
    return len(sampled), wrong


def _text_hash(encoding: tiktoken.Encoding, tokens: npt.NDArray[Any]) -> str:
    """The BLAKE3 of the text; no text's when there is a token that stands for nothing."""
    try:
        return digest.of_bytes(encoding.decode_bytes(tokens.tolist()))
    except KeyError:
        return "undecodable"


def drift(old: Statistics, new: Statistics) -> dict[str, float]:
    """The population stability index of documents by length and by language, from one table to another."""
    languages = [[(each.name, each.documents) for each in found.languages] for found in (old, new)]
    return {"lengths": stability_index(old.lengths, new.lengths), "languages": stability_index(*languages)}


def _sample(snapshot: shards.Snapshot, tier: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
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

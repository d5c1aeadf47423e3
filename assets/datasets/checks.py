"""Checks: what must hold of a snapshot before a dataset points at it, read back from the shards as they lie.

Each gives plain numbers; nothing here trusts what the steps that wrote the shards believed.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tiktoken

from trainer import digest, shards

SAMPLE = 20
"""Documents that are decoded and compared with the table, spread evenly over the snapshot."""


def empty_splits(snapshot: shards.Snapshot) -> list[str]:
    """The splits without a document or without a token."""
    return [name for name, split in snapshot.splits.items() if not split.documents or not split.tokens]


def undecodable(
    snapshot: shards.Snapshot, tier: Path, encoding: tiktoken.Encoding, table: Mapping[str, str]
) -> tuple[int, int]:
    """How many documents of a fixed sample were decoded, and how many of them are not texts of the table.

    `table` gives the split of each document by the BLAKE3 of its text. A document must end with the
    end-of-document token, and what stands before it must decode to a text of the same split.
    """
    sample = [(name, tokens) for name in snapshot.splits for tokens in shards_documents]
    chosen = [sample[index] for index in np.linspace(0, len(sample) - 1, min(SAMPLE, len(sample)), dtype=int)]
    end = snapshot.tokenizer.end_of_document
    wrong = sum(
        not (tokens[-1] == end and table.get(digest.of_bytes(encoding.decode_bytes(tokens[:-1].tolist()))) == name)
        for name, tokens in chosen
    )
    return len(chosen), wrong

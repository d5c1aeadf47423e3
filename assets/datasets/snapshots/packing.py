"""Packing: cuts the sequence of a split's documents into shards.

The content decides the cuts (content-defined chunking, Muthitacharoen et al. 2001): a document that is added, removed
or changed moves the cuts next to it, and soon after the cuts are at the same documents as before. So two snapshots of
nearly the same corpus share nearly all shards, however the corpus grew.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]
ContentHashes = npt.NDArray[np.uint64]
LONGEST = 3 / 2
"""The largest size of a shard, relative to the target; only a single long document can exceed it."""


def parts(batches: Iterable[pa.RecordBatch], target: int) -> Iterator[pa.Table]:
    """The rows of each shard, in order. `batches` have a row a document, with the columns `count`, its tokens or bytes
    (int64), and `hash` (uint64); cut as `cuts` does it, while they come: memory holds a shard's rows and one batch."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += pa.compute.sum(batch["count"]).as_py() or 0
        if size > LONGEST * target:
            table = pa.Table.from_batches(pending)
            done = 0
            for cut in _cuts_of(table, target, more=True):
                yield table.slice(cut.start, cut.stop - cut.start)
                done = cut.stop
            pending = table.slice(done).to_batches()
            size = sum(pa.compute.sum(batch["count"]).as_py() for batch in pending)
    if pending:
        table = pa.Table.from_batches(pending)
        yield from (table.slice(cut.start, cut.stop - cut.start) for cut in _cuts_of(table, target, more=False))


def _cuts_of(table: pa.Table, target: int, more: bool) -> list[slice]:
    return cuts(table["count"].to_numpy(), table["hash"].to_numpy(), target, more)


def cuts(tokens: Integers, hashes: ContentHashes, target: int, more: bool = False) -> list[slice]:
    """The documents of each shard, in order; `tokens` and `hashes` have one entry a document.

    A shard ends with the document of the lowest hash among those with which it has between one half and one and a
    half times `target` tokens. Only the last shard may be shorter, and a shard is longer when a single document is.
    When `more` documents follow, only those shards are given that they cannot change.
    Takes O(documents) time and memory.
    """
    ends = np.cumsum(tokens)
    bounds = [0]
    begin = 0
    count = len(tokens)
    while begin < count:
        before = int(ends[begin - 1]) if begin else 0
        # The first document that makes the shard long enough, and the first that would make it too long.
        shortest = int(np.searchsorted(ends, before + target / 2, "left"))
        longest = int(np.searchsorted(ends, before + target * LONGEST, "right"))
        if more and longest == count:
            break
        if longest == count and shortest >= count - 1:
            begin = count
        elif longest <= shortest:
            begin = shortest + 1
        else:
            begin = shortest + int(np.argmin(hashes[shortest:longest])) + 1
        bounds.append(begin)
    return [slice(start, end) for start, end in pairwise(bounds)]

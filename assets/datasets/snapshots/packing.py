"""Packing: where the sequence of a split's documents is cut into shards.

The content decides the cuts (content-defined chunking, Muthitacharoen et al. 2001): a document that is added, removed
or changed moves the cuts next to it, and soon after the cuts are at the same documents as before. So two snapshots of
nearly the same corpus share nearly all shards, however the corpus grew.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
ContentHashes = npt.NDArray[np.uint64]


def cuts(tokens: Integers, hashes: ContentHashes, target: int) -> list[slice]:
    """The documents of each shard, in order; `tokens` and `hashes` have one entry a document.

    A shard ends with the document of the lowest hash among those with which it has between one half and one and a
    half times `target` tokens. Only the last shard may be shorter, and a shard is longer when a single document is.
    Takes O(documents) time and memory.
    """
    ends = np.cumsum(tokens)
    bounds, begin, count = [0], 0, len(tokens)
    while begin < count:
        before = int(ends[begin - 1]) if begin else 0
        # The first document that makes the shard long enough, and the first that would make it too long.
        shortest = int(np.searchsorted(ends, before + target / 2, "left"))
        longest = int(np.searchsorted(ends, before + target * 3 / 2, "right"))
        if longest == count and shortest >= count - 1:
            begin = count
        elif longest <= shortest:
            begin = shortest + 1
        else:
            begin = shortest + int(np.argmin(hashes[shortest:longest])) + 1
        bounds.append(begin)
    return [slice(start, end) for start, end in pairwise(bounds)]

"""Data order: which sample is seen when, as a pure function of (seed, position).

A keyed Feistel network is a permutation that needs no memory: sample number `position` of an epoch is
computed, not looked up, so that resuming anywhere is immediate and the state is one integer, the samples
consumed. The order does not depend on the number of ranks: they share out each step's samples.
"""

import numpy as np
import numpy.typing as npt

from trainer import digest

ROUNDS = 4
Indices = npt.NDArray[np.uint64]


def samples(total: int, seed: int, first: int, count: int) -> Indices:
    """The samples at positions first .. first + count - 1 of the training, each in 0 .. total - 1.

    An epoch is `total` positions and shows every sample once; each epoch has its own permutation.
    """
    positions = np.arange(first, first + count, dtype=np.uint64)
    epochs = positions // np.uint64(total)
    chosen = np.empty(count, np.uint64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        chosen[here] = permute(positions[here] % np.uint64(total), total, f"{seed}/{epoch}")
    return chosen


def permute(positions: Indices, total: int, key: str) -> Indices:
    """A bijection of 0 .. total - 1 chosen by `key`, applied to each position.

    The network permutes the next even power of two; values outside walk on until they fall inside
    (cycle walking, Black and Rogaway 2002), at most 4 rounds on average.
    """
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    keys = [int(digest.of_bytes(f"{key}/{round}".encode())[:16], 16) for round in range(ROUNDS)]
    values = _feistel(positions, half, keys)
    outside = values >= total
    while outside.any():
        values[outside] = _feistel(values[outside], half, keys)
        outside = values >= total
    return values


def share(count: int, rank: int, world: int) -> slice:
    """Rank's part of `count` samples: contiguous, and at most one larger than any other rank's."""
    return slice(count * rank // world, count * (rank + 1) // world)


def _feistel(values: Indices, half: int, keys: list[int]) -> Indices:
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (mix(right ^ np.uint64(key)) & mask)
    return (left << shift) | right


def mix(values: Indices) -> Indices:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

"""Data order: which sample is seen when, as a pure function of (seed, position), with bounded reading.

Two levels. An epoch shuffles the shards and deals them into blocks of several shards; it then goes through
block after block and shows all samples of a block in a permuted order. So at any moment only the shards of one
block are read (of two, where a batch goes from one into the next). A keyed Feistel network is a permutation
that needs no memory: a sample is computed, not looked up, so that resuming anywhere is immediate and the state
is one integer, the samples consumed. The order does not depend on the number of ranks: they share out each
step's samples.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer import digest

ROUNDS = 4
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, odd: the step of splitmix64."""
Indices = npt.NDArray[np.uint64]


class Order:
    """The order of the samples of a list of shards, `sizes[i]` samples in the i-th; numbered through from 0.

    An epoch is `len(order)` positions and shows every sample once; each epoch has its own order. `block` is
    how many shards are shuffled together: more of them shuffle better and keep more files in use. Up to
    `block` shards are one block, which is a perfect shuffle. Memory and the work to begin an epoch grow with
    the number of shards only: about 40 bytes and 100 ns a shard.
    """

    def __init__(self, sizes: Sequence[int] | npt.NDArray[np.int64], seed: int, block: int) -> None:
        self._sizes, self._seed, self._block = np.asarray(sizes, np.uint64), seed, block
        self._ends = np.cumsum(self._sizes)
        self._total = int(self._ends[-1])
        # The present epoch and, for a batch that goes from one into the next, its neighbour.
        self._epoch = functools.lru_cache(maxsize=2)(self._compute_epoch)

    def __len__(self) -> int:
        return self._total

    def samples(self, first: int, count: int) -> Indices:
        """The numbers of the samples at positions first .. first + count - 1 of the training."""
        chosen = np.empty(count, np.uint64)
        done = 0
        while done < count:
            number, position = divmod(first + done, self._total)
            epoch = self._epoch(number)
            block = epoch.block_at(position)
            here = min(count - done, int(epoch.begins[block + 1]) - position)
            chosen[done : done + here] = epoch.samples(block, position, here)
            done += here
        return chosen

    def shards(self, first: int) -> list[int]:
        """Every shard once, in the order in which a training at position `first` comes to need it."""
        number, position = divmod(first, self._total)
        epoch = self._epoch(number)
        left = epoch.shards[int(epoch.firsts[epoch.block_at(position)]) :]
        return list(dict.fromkeys([*left.tolist(), *self._epoch(number + 1).shards.tolist()]))

    def _compute_epoch(self, number: int) -> "_Epoch":
        key, count = f"{self._seed}/{number}", len(self._sizes)
        shards = shuffled(count, key)
        blocks = -(-count // self._block)
        firsts = np.arange(blocks + 1, dtype=np.uint64) * np.uint64(count) // np.uint64(blocks)
        ends = np.cumsum(self._sizes[shards])
        # A shard's samples lie at positions before its end in the epoch, and at numbers before its end in the split.
        shifts = self._ends[shards] - ends
        return _Epoch(key, shards, firsts, np.append(np.uint64(0), ends)[firsts], ends, shifts)


@dataclass(frozen=True)
class _Epoch:
    """One epoch's shards in its order, and the blocks that they are dealt into."""

    key: str
    shards: Indices
    firsts: Indices
    """Where in `shards` each block begins; and the number of shards."""
    begins: Indices
    """The position at which each block begins; and the number of samples."""
    ends: Indices
    """The position at which each of `shards` ends, before the samples of a block are permuted."""
    shifts: Indices
    """What to add, modulo 2^64, to such a position to have the sample's number."""

    def block_at(self, position: int) -> int:
        return int(np.searchsorted(self.begins, np.uint64(position), "right")) - 1

    def samples(self, block: int, position: int, count: int) -> Indices:
        """The samples at `count` positions from `position` on, all in `block`."""
        begin = int(self.begins[block])
        within = np.arange(position - begin, position - begin + count, dtype=np.uint64)
        places = permute(within, int(self.begins[block + 1]) - begin, f"{self.key}/{block}") + np.uint64(begin)
        return places + self.shifts[np.searchsorted(self.ends, places, "right")]


def shuffled(count: int, key: str) -> Indices:
    """0 .. count - 1 in an order chosen by `key`: sorted by the numbers that splitmix64 gives from there on.

    An index takes the place of its number's lowest bits, so that no two are equal and nothing but values is
    sorted, which is faster than sorting indices.
    """
    indices = np.arange(count, dtype=np.uint64)
    low = np.uint64((1 << (count - 1).bit_length()) - 1)
    numbers = mix(np.uint64(_number(key)) + indices * GOLDEN)
    return np.sort((numbers & ~low) | indices) & low


def permute(positions: Indices, total: int, key: str) -> Indices:
    """A bijection of 0 .. total - 1 chosen by `key`, applied to each position.

    The network permutes the next even power of two; values outside walk on until they fall inside
    (cycle walking, Black and Rogaway 2002), at most 4 rounds on average.
    """
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    keys = [_number(f"{key}/{round}") for round in range(ROUNDS)]
    values = _feistel(positions, half, keys)
    outside = np.flatnonzero(values >= total)
    while len(outside):
        walked = _feistel(values[outside], half, keys)
        values[outside] = walked
        outside = outside[walked >= total]
    return values


def share(count: int, rank: int, world: int) -> slice:
    """Rank's part of `count` samples: contiguous, and at most one larger than any other rank's."""
    return slice(count * rank // world, count * (rank + 1) // world)


def _number(key: str) -> int:
    """64 bits that `key` decides."""
    return int(digest.of_bytes(key.encode())[:16], 16)


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

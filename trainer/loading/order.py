"""Data order: the sample at each position of a training, as a pure function of the seed and the position.

An epoch shuffles the shards, divides them into blocks of several shards, and then reads block after block, with the
samples of a block in a permuted order. So at any moment a training reads only the shards of one block, or of two when a
batch spans two blocks. The permutation is a keyed Feistel network, which needs no memory: a sample is computed, not
looked up. So resuming anywhere is immediate, and the state is one integer, the samples consumed. The order does not
depend on the number of ranks, which divide each step's samples among them.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from slipway.trainer.base import digest
from slipway.trainer.base.draws import GOLDEN, mix
from slipway.trainer.config.layout import Mesh

ROUNDS = 4
Indices = npt.NDArray[np.uint64]
NODES_IN_WORDS = 8
"""The most nodes that a sentence names; the ledger has all."""
Span = tuple[int, int]
"""The places of a rank's samples in the batch: the first one, and the one after the last."""


class SampleOrder(Protocol):
    """The order of one dataset (`Order`) or of several (`slipway.trainer.loading.blend.Blend`)."""

    def __len__(self) -> int: ...
    def samples(self, first: int, count: int) -> Indices: ...
    def shards(self, first: int) -> list[int]: ...
    def blocks(self, first: int, end: int) -> Iterator["Block"]: ...
    def shards_at_most(self, samples: int) -> int: ...


class Order:
    """The order of the samples of a list of shards. Shard i has `sizes[i]` samples; numbers count through all shards.

    An epoch has `len(order)` positions and every sample once; each epoch has its own order. The samples of `block`
    shards are shuffled together: more shards shuffle better, but keep more files in use. A list of at most `block`
    shards is one block, and so a perfect shuffle. Memory and the time to begin an epoch grow only with the number of
    shards: about 40 bytes and 100 ns for each.
    """

    def __init__(self, sizes: Sequence[int] | npt.NDArray[np.int64], seed: int | str, block: int) -> None:
        """`seed` is the training's, or a text with it that differs between the orders of one training."""
        self._sizes = np.asarray(sizes, np.uint64)
        self._seed = seed
        self._block = block
        self._ends = np.cumsum(self._sizes)
        self._total = int(self._ends[-1])
        # Two epochs: a batch may span the present one and the next.
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
            length = min(count - done, int(epoch.begins[block + 1]) - position)
            chosen[done : done + length] = epoch.samples(block, position, length)
            done += length
        return chosen

    def shards(self, first: int) -> list[int]:
        """Every shard once, in the order in which a training at position `first` needs them."""
        number, position = divmod(first, self._total)
        epoch = self._epoch(number)
        rest_of_epoch = epoch.shards[int(epoch.firsts[epoch.block_at(position)]) :]
        return list(dict.fromkeys([*rest_of_epoch.tolist(), *self._epoch(number + 1).shards.tolist()]))

    def blocks(self, first: int, end: int) -> Iterator["Block"]:
        """The blocks that a training reads from position `first` up to `end`, in its order, over all epochs."""
        number, position = divmod(first, self._total)
        while number * self._total + position < end:
            epoch = self._epoch(number)
            base = number * self._total
            for block in range(epoch.block_at(position), len(epoch.firsts) - 1):
                begin = base + int(epoch.begins[block])
                over = base + int(epoch.begins[block + 1])
                if begin >= end:
                    return
                if over > begin:
                    yield Block(
                        begin, over, tuple(epoch.shards[epoch.firsts[block] : epoch.firsts[block + 1]].tolist())
                    )
            number = number + 1
            position = 0

    def shards_at_most(self, samples: int) -> int:
        """The largest number of shards of this many consecutive samples, in any epoch."""
        count = len(self._sizes)
        blocks = -(-count // self._block)
        smallest = int(np.sort(self._sizes)[: count // blocks].sum())
        crossed = -(-samples // smallest) + 1 if smallest else count
        return min(count, crossed * -(-count // blocks))

    def _compute_epoch(self, number: int) -> "_Epoch":
        key = f"{self._seed}/{number}"
        count = len(self._sizes)
        shards = shuffled(count, key)
        blocks = -(-count // self._block)
        firsts = np.arange(blocks + 1, dtype=np.uint64) * np.uint64(count) // np.uint64(blocks)
        ends = np.cumsum(self._sizes[shards])
        # A shard's samples lie at positions before its end in the epoch, and at numbers before its end in the split.
        shifts = self._ends[shards] - ends
        return _Epoch(key, shards, firsts, np.append(np.uint64(0), ends)[firsts], ends, shifts)


@dataclass(frozen=True)
class Block:
    """One block of an epoch: the positions begin .. end - 1 of a training, and the shards of their samples."""

    begin: int
    end: int
    shards: tuple[int, ...]


def shuffled(count: int, key: str) -> Indices:
    """0 .. count - 1 in an order chosen by `key`: sorted by the outputs of splitmix64, which `key` seeds.

    The index replaces the lowest bits of each output. So no two are equal, and sorting the values is enough, which is
    faster than sorting indices.
    """
    indices = np.arange(count, dtype=np.uint64)
    low = np.uint64((1 << (count - 1).bit_length()) - 1)
    numbers = mix(np.uint64(_number(key)) + indices * GOLDEN)
    return np.sort((numbers & ~low) | indices) & low


def permute(positions: Indices, total: int, key: str) -> Indices:
    """A bijection of 0 .. total - 1 chosen by `key`, applied to each position.

    The network permutes the range up to the next even power of two; values outside of 0 .. total - 1 are permuted again
    until they fall inside (cycle walking, Black and Rogaway 2002), at most 4 times on average.
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


def rank_slice(count: int, rank: int, world: int) -> slice:
    """The part of `count` samples for `rank`: contiguous; the sizes of the ranks' parts differ by at most one."""
    return slice(count * rank // world, count * (rank + 1) // world)


def spans(sequences: int, mesh: Mesh) -> list[Span]:
    """Each rank's samples in a batch of `sequences`; ranks that share matrices or sequences have the same ones."""
    slices = (rank_slice(sequences, mesh.data_rank(rank), mesh.data) for rank in range(mesh.ranks))
    return [(part.start, part.stop) for part in slices]


def division_in_words(sequences: int, mesh: Mesh, ranks: Sequence[str]) -> str:
    """The samples of each node, for a person; `ranks` names the node of each rank."""
    spans_by_node = dict[str, list[Span]]()
    for node, span in zip(ranks, spans(sequences, mesh), strict=True):
        spans_by_node.setdefault(node, []).append(span)
    if len(spans_by_node) > NODES_IN_WORDS:
        return f"{len(spans_by_node)} nodes, in the order of their ranks"
    return ", ".join(f"{node} {_text(node_spans)}" for node, node_spans in spans_by_node.items())


@dataclass(frozen=True)
class _Epoch:
    """One epoch: its shards in order, and its blocks."""

    key: str
    shards: Indices
    firsts: Indices
    """The index in `shards` at which each block begins, followed by the number of shards."""
    begins: Indices
    """The position at which each block begins, followed by the number of samples."""
    ends: Indices
    """The position at which each of `shards` ends, before the samples of a block are permuted."""
    shifts: Indices
    """The sum of such a position and this number, modulo 2^64, is the sample's number."""

    def block_at(self, position: int) -> int:
        return int(np.searchsorted(self.begins, np.uint64(position), "right")) - 1

    def samples(self, block: int, position: int, count: int) -> Indices:
        """The samples at `count` positions from `position` on, all in `block`."""
        begin = int(self.begins[block])
        within = np.arange(position - begin, position - begin + count, dtype=np.uint64)
        positions = permute(within, int(self.begins[block + 1]) - begin, f"{self.key}/{block}") + np.uint64(begin)
        return positions + self.shifts[np.searchsorted(self.ends, positions, "right")]


def _number(key: str) -> int:
    """A hash of `key`, 64 bits long."""
    return int(digest.of_bytes(key.encode())[:16], 16)


def _feistel(values: Indices, half: int, keys: list[int]) -> Indices:
    mask = np.uint64((1 << half) - 1)
    shift = np.uint64(half)
    high = values >> shift
    low = values & mask
    for key in keys:
        high, low = low, high ^ (mix(low ^ np.uint64(key)) & mask)
    return (high << shift) | low


def _text(node_spans: Sequence[Span]) -> str:
    """The samples of a node; the ranges of neighbouring ranks are merged."""
    merged: list[Span] = []
    for first, end in sorted(set(node_spans)):
        if merged and merged[-1][1] >= first:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((first, end))
    return " and ".join(f"{first} to {end - 1}" for first, end in merged)

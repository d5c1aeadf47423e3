"""Blend: one order of samples out of those of several datasets, by weights that may change at given steps. Pure.

In each phase, a pattern of datasets repeats. It gives the next sample to the dataset that lags most behind its share,
as Megatron-LM's blended datasets do (`build_blending_indices` in `megatron/core/datasets/helpers.cpp`). Here the
shares are whole numbers, so that a dataset is never a whole sample ahead of its share, and each repetition of the
pattern gives every dataset exactly its share. Megatron keeps an index of all samples; a pattern has 10,000 places at
most, and what a position needs follows from it by arithmetic. So resuming anywhere takes no time, and the state is
still one integer, the samples consumed.

Each dataset has an order of its own (`slipway.trainer.loading.order`), with its own shuffles, in which a change of the
weights leaves no gap: a dataset that ends begins its next epoch, and goes on where it was when a phase names it again.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipway.trainer.loading.order import Block, Indices, Order

FOR_EVER = 2**63
Counts = npt.NDArray[np.int64]
"""Samples, by the number of their source."""


@dataclass(frozen=True)
class Source:
    """A dataset of a mixture: the order of its samples, and where its shards and samples begin among all."""

    name: str
    order: Order
    first_shard: int
    first_sample: int


class Blend:
    """The order of the samples of several sources, which are numbered in the order given; as `Order` otherwise."""

    def __init__(self, sources: Sequence[Source], phases: Sequence[tuple[int, Mapping[str, int]]]) -> None:
        """`phases` are the position at which each begins, from 0 on, and whole shares by the source's name."""
        self.sources = list(sources)
        self._phases = list[_Phase]()
        ends = [*(begin for begin, _ in phases[1:]), FOR_EVER]
        for (begin, shares), end in zip(phases, ends, strict=True):
            before = self.consumed(begin) if self._phases else np.zeros(len(sources), np.int64)
            pattern = _pattern(tuple(shares.get(source.name, 0) for source in sources))
            self._phases.append(_Phase(begin, end, before, pattern))

    @property
    def changes(self) -> list[int]:
        """The positions at which the weights change."""
        return [phase.begin for phase in self._phases[1:]]

    def __len__(self) -> int:
        """The samples of all sources."""
        return sum(len(source.order) for source in self.sources)

    def consumed(self, position: int) -> Counts:
        """How many samples each source has given before `position`."""
        return self._phase_at(position).consumed(position)

    def passes(self, position: int) -> dict[str, float]:
        """How often each source has been read before `position`, by its name: 1.5 is one and a half times."""
        counts = self.consumed(position).tolist()
        return {source.name: count / len(source.order) for source, count in zip(self.sources, counts, strict=True)}

    def samples(self, first: int, count: int) -> Indices:
        """The numbers of the samples at positions first .. first + count - 1 of the training."""
        chosen = np.empty(count, np.uint64)
        for phase, begin, end in self._stretches(first, first + count):
            which, before = phase.which(begin, end), phase.consumed(begin).tolist()
            part = chosen[begin - first : end - first]
            for number in np.unique(which).tolist():
                # A source's samples in neighbouring positions are neighbours in its own order.
                mask, source = which == number, self.sources[number]
                own = source.order.samples(before[number], int(mask.sum()))
                part[mask] = own + np.uint64(source.first_sample)
        return chosen

    def shards(self, first: int) -> list[int]:
        """Every shard once, roughly in the order in which a training at position `first` needs them."""
        phase = self._phase_at(first)
        before, due_shards = phase.consumed(first).tolist(), list[tuple[float, int]]()
        for number, source in enumerate(self.sources):
            own = source.order.shards(before[number])
            pace = phase.pattern.shares[number] / len(source.order) * len(own)
            due_shards += [
                ((index + 1) / pace if pace else math.inf, source.first_shard + shard)
                for index, shard in enumerate(own)
            ]
        return [shard for _, shard in sorted(due_shards)]

    def blocks(self, first: int, end: int) -> Iterator[Block]:
        """The stretches, from position `first` up to `end`, in which every source stays in one block of its order."""
        for phase, begin, over in self._stretches(first, end):
            position = begin
            while position < over:
                block = self._block(phase, position)
                yield block
                position = block.end

    def shards_at_most(self, samples: int) -> int:
        """The most shards that so many samples in a row may lie in, whatever the epochs."""
        return sum(source.order.shards_at_most(samples) for source in self.sources)

    def _block(self, phase: "_Phase", position: int) -> Block:
        """The stretch that begins at `position`, and its shards."""
        ends, shards = [phase.end], list[int]()
        before = phase.consumed(position).tolist()
        for number, source in enumerate(self.sources):
            if not phase.pattern.shares[number]:
                continue
            own = next(source.order.blocks(before[number], before[number] + 1))
            ends.append(phase.position_of(number, own.end))
            shards += [source.first_shard + shard for shard in own.shards]
        return Block(position, min(ends), tuple(shards))

    def _phase_at(self, position: int) -> "_Phase":
        return next(phase for phase in reversed(self._phases) if phase.begin <= position)

    def _stretches(self, first: int, end: int) -> Iterator[tuple["_Phase", int, int]]:
        """The phases of the positions first .. end - 1, each with the first and the end of its part of them."""
        for phase in self._phases:
            begin, over = max(first, phase.begin), min(end, phase.end)
            if begin < over:
                yield phase, begin, over


@dataclass(frozen=True)
class _Pattern:
    """Which source gives the sample at each place, until it repeats."""

    shares: tuple[int, ...]
    sources: npt.NDArray[np.int64]
    indices: tuple[npt.NDArray[np.int64], ...]
    """By source, its places in the pattern."""

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, eq=False)
class _Phase:
    """Positions begin .. end - 1, and what the sources had given before them."""

    begin: int
    end: int
    before: Counts
    pattern: _Pattern

    def consumed(self, position: int) -> Counts:
        """How many samples each source has given before `position`, since the training began."""
        times, rest = divmod(position - self.begin, len(self.pattern))
        partly = np.bincount(self.pattern.sources[:rest], minlength=len(self.before))
        counts: Counts = self.before + times * np.array(self.pattern.shares) + partly
        return counts

    def which(self, first: int, end: int) -> npt.NDArray[np.int64]:
        """The source of each position first .. end - 1."""
        return self.pattern.sources[np.arange(first - self.begin, end - self.begin) % len(self.pattern)]

    def position_of(self, source: int, number: int) -> int:
        """The position of the sample that is this number in the source's own order."""
        times, rest = divmod(number - int(self.before[source]), self.pattern.shares[source])
        return self.begin + times * len(self.pattern) + int(self.pattern.indices[source][rest])


@functools.lru_cache(maxsize=64)
def _pattern(shares: tuple[int, ...]) -> _Pattern:
    """The pattern in which each source comes as often as its share: the one that lags most behind is next.

    Of sources that lag equally, the first is next. A source that is chosen lags, so it is never a whole sample ahead;
    at the end all have what they should, as nobody has more and the pattern is as long as the sum.
    """
    period, due = sum(shares), np.zeros(len(shares), np.int64)
    sources, increments = np.empty(period, np.int64), np.array(shares, np.int64)
    for index in range(period):
        due += increments
        sources[index] = chosen = int(due.argmax())
        due[chosen] -= period
    return _Pattern(shares, sources, tuple(np.flatnonzero(sources == number) for number in range(len(shares))))

"""Blend: one order of the samples of several datasets, by weights that may change at given steps.

In each phase, a pattern of datasets repeats. The next sample comes from the dataset that lags most behind its share, as
in Megatron-LM's blended datasets (`build_blending_indices` in `megatron/core/datasets/helpers.cpp`). Here the shares
are integers, so a dataset is never a whole sample ahead of its share, and each repetition of the pattern gives every
dataset exactly its share. Megatron stores an index of all samples; a pattern has at most 10,000 entries, and the sample
at a position follows from it by arithmetic. So resuming anywhere takes no time, and the state is still one integer, the
samples consumed.

Each dataset has its own order (`slipway.trainer.loading.order`), with its own shuffles. A change of the weights leaves
no gap in it: a dataset that ends begins its next epoch, and one that a phase drops continues when a later phase names
it again.
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
    """A dataset of a mixture: its order, and the numbers of its first shard and sample in the mixture."""

    name: str
    order: Order
    first_shard: int
    first_sample: int


class Blend:
    """The order of the samples of several sources: a `SampleOrder`. Sources are numbered as they are listed."""

    def __init__(self, sources: Sequence[Source], phases: Sequence[tuple[int, Mapping[str, int]]]) -> None:
        """Each of `phases` has the position at which it begins, from 0 on, and integer shares by source name."""
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
        """The samples that each source has given before `position`."""
        return self._phase_at(position).consumed(position)

    def passes(self, position: int) -> dict[str, float]:
        """How often each source has been read before `position`, by its name: 1.5 is one and a half times."""
        counts = self.consumed(position).tolist()
        return {source.name: count / len(source.order) for source, count in zip(self.sources, counts, strict=True)}

    def samples(self, first: int, count: int) -> Indices:
        """The numbers of the samples at positions first .. first + count - 1 of the training."""
        chosen = np.empty(count, np.uint64)
        for phase, begin, end in self._stretches(first, first + count):
            which = phase.which(begin, end)
            before = phase.consumed(begin).tolist()
            part = chosen[begin - first : end - first]
            for number in np.unique(which).tolist():
                # A source's samples in neighbouring positions are neighbours in its own order.
                mask = which == number
                source = self.sources[number]
                own = source.order.samples(before[number], int(mask.sum()))
                part[mask] = own + np.uint64(source.first_sample)
        return chosen

    def shards(self, first: int) -> list[int]:
        """Every shard once, roughly in the order in which a training at position `first` needs them."""
        phase = self._phase_at(first)
        before = phase.consumed(first).tolist()
        due_shards = list[tuple[float, int]]()
        for number, source in enumerate(self.sources):
            own = source.order.shards(before[number])
            pace = phase.pattern.shares[number] / len(source.order) * len(own)
            due_shards += [
                ((index + 1) / pace if pace else math.inf, source.first_shard + shard)
                for index, shard in enumerate(own)
            ]
        return [shard for _, shard in sorted(due_shards)]

    def blocks(self, first: int, end: int) -> Iterator[Block]:
        """The ranges, from position `first` up to `end`, in which every source stays in one block of its order."""
        for phase, begin, over in self._stretches(first, end):
            position = begin
            while position < over:
                block = self._block(phase, position)
                yield block
                position = block.end

    def shards_at_most(self, samples: int) -> int:
        """The largest number of shards of this many consecutive samples, in any epochs."""
        return sum(source.order.shards_at_most(samples) for source in self.sources)

    def _block(self, phase: "_Phase", position: int) -> Block:
        """The range that begins at `position`, and its shards."""
        ends = [phase.end]
        shards = list[int]()
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
        """The phases of the positions first .. end - 1, each with its part of these positions: begin and end."""
        for phase in self._phases:
            begin = max(first, phase.begin)
            over = min(end, phase.end)
            if begin < over:
                yield phase, begin, over


@dataclass(frozen=True)
class _Pattern:
    """The source of the sample at each place of a repeating pattern."""

    shares: tuple[int, ...]
    sources: npt.NDArray[np.int64]
    indices: tuple[npt.NDArray[np.int64], ...]
    """By source, its places in the pattern."""

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, eq=False)
class _Phase:
    """Positions begin .. end - 1, and the samples that the sources have given before them."""

    begin: int
    end: int
    before: Counts
    pattern: _Pattern

    def consumed(self, position: int) -> Counts:
        """The samples that each source has given before `position`, since the training began."""
        times, rest = divmod(position - self.begin, len(self.pattern))
        partly = np.bincount(self.pattern.sources[:rest], minlength=len(self.before))
        counts: Counts = self.before + times * np.array(self.pattern.shares) + partly
        return counts

    def which(self, first: int, end: int) -> npt.NDArray[np.int64]:
        """The source of each position first .. end - 1."""
        return self.pattern.sources[np.arange(first - self.begin, end - self.begin) % len(self.pattern)]

    def position_of(self, source: int, number: int) -> int:
        """The position of the sample with this number in the source's own order."""
        times, rest = divmod(number - int(self.before[source]), self.pattern.shares[source])
        return self.begin + times * len(self.pattern) + int(self.pattern.indices[source][rest])


@functools.lru_cache(maxsize=64)
def _pattern(shares: tuple[int, ...]) -> _Pattern:
    """The pattern in which each source comes as often as its share: the source that lags most is next.

    Of sources that lag equally, the first is next. The chosen source lags, so no source is ever a whole sample ahead.
    At the end each has exactly its share: none has more, and the pattern is as long as the sum of the shares.
    """
    period = sum(shares)
    due = np.zeros(len(shares), np.int64)
    sources = np.empty(period, np.int64)
    increments = np.array(shares, np.int64)
    for index in range(period):
        due += increments
        sources[index] = chosen = int(due.argmax())
        due[chosen] -= period
    return _Pattern(shares, sources, tuple(np.flatnonzero(sources == number) for number in range(len(shares))))

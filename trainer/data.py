"""Sequences of a snapshot's split: windows over the shards' token streams, read through mmap."""

import bisect
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer import shards

Tokens = npt.NDArray[np.int64]


class Sequences:
    """The windows of `length` + 1 tokens of one split: the last token of each is the last one's target.

    Windows don't overlap but for that target, and don't cross shards; the tail of a shard that is shorter
    than a window belongs to no training sequence.
    """

    def __init__(self, tier: Path, snapshot: shards.Snapshot, split: str, length: int) -> None:
        """Open the split's shards in `tier`. Raises ValueError when a shard is truncated or the split too short."""
        self.length = length
        described = snapshot.splits[split].shards
        self._tokens = [shards.open_shard(tier, shard, snapshot.dtype)[0] for shard in described]
        windows = [max(0, len(tokens) - 1) // length for tokens in self._tokens]
        self._ends = list(itertools.accumulate(windows))
        if not self._ends or self._ends[-1] == 0:
            raise ValueError(f"split {split} of {snapshot.dataset} has no sequence of {length} tokens")

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, numbers: npt.NDArray[np.uint64]) -> Tokens:
        """The windows of these numbers: [len(numbers), length + 1]."""
        out = np.empty((len(numbers), self.length + 1), np.int64)
        for row, number in enumerate(numbers.tolist()):
            shard = bisect.bisect_right(self._ends, number)
            start = (number - (self._ends[shard - 1] if shard else 0)) * self.length
            out[row] = self._tokens[shard][start : start + self.length + 1]
        return out

    def tails(self) -> Iterator[Tokens]:
        """What no window covers: the rest of each shard, [1, 2 .. length + 1], where there is any."""
        for tokens in self._tokens:
            rest = np.asarray(tokens[max(0, len(tokens) - 1) // self.length * self.length :], np.int64)
            if len(rest) > 1:
                yield rest[None]

"""Sequences of a snapshot's split: windows over the shards' token streams, read through mmap.

A token stays two or four bytes, as on disk; the model widens it on the device.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from slipway.trainer.data import shards

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
View = TypeVar("View")
"""The content of an open shard: its tokens with their documents, or its images with their labels."""
OPEN = 1024
"""Shards that stay mapped at once; the kernel allows a process some 65,000 mappings."""


class OpenTokens(NamedTuple):
    """An open shard."""

    tokens: npt.NDArray[Any]
    offsets: npt.NDArray[Any]
    """Where each document begins, and the number of tokens."""


class SequenceStarts:
    """Finds samples that are numbered through all shards; the i-th shard has `sizes[i]` of them."""

    def __init__(self, sizes: npt.NDArray[np.int64]) -> None:
        self._ends = np.cumsum(sizes)
        self._begins = self._ends - sizes

    def of(self, numbers: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
        """The shard of each sample, and the sample's number there."""
        positions = numbers.astype(np.int64)
        shard_indices = np.searchsorted(self._ends, positions, "right")
        return zip(shard_indices.tolist(), (positions - self._begins[shard_indices]).tolist(), strict=True)


class OpenShards(Generic[View]):
    """The open shards of a split, by number: the last `OPEN` that were read, without closed ones."""

    def __init__(self, open_shard: Callable[[int], View]) -> None:
        """`open_shard` is called for a shard that is not open; once more when its file was removed meanwhile."""
        self._open_shard = open_shard
        self._open = dict[int, View]()

    def __getitem__(self, index: int) -> View:
        view = self._open.pop(index, None)
        if view is None:
            try:
                view = self._open_shard(index)
            except FileNotFoundError:
                view = self._open_shard(index)
        self._open[index] = view
        if len(self._open) > OPEN:
            del self._open[next(iter(self._open))]
        return view

    def close_others(self, indices: Collection[int]) -> None:
        """Close all but these: a removed file takes space on the disk while it is open."""
        self._open = {index: view for index, view in self._open.items() if index in indices}


class Sequences:
    """The windows of `length` + 1 tokens of one split: the last token of each is the last one's target.

    Windows don't overlap but for that target, and don't cross shards; the tail of a shard that is shorter
    than a window belongs to no training sequence. A shard's file is opened when it is first read.
    """

    def __init__(
        self,
        tier: Path,
        snapshot: shards.TextSnapshot,
        split: str,
        length: int,
        bring: Callable[[shards.TokenShard], None] | None = None,
    ) -> None:
        """`bring` is called with a shard before it is opened. Raises ValueError when the split has no window."""
        if snapshot.dtype not in shards.DTYPES:
            where = shards.manifest_path(tier, snapshot.sha256)
            raise ValueError(f"{where}: dtype: found {snapshot.dtype!r}, expected {' or '.join(shards.DTYPES)}")
        self.length = length
        self.dtype = shards.DTYPES[snapshot.dtype]
        self.shards = snapshot.splits[split].shards
        tokens = np.array([shard.tokens for shard in self.shards], np.int64)
        self.sizes = np.maximum(tokens - 1, 0) // length
        """How many windows each shard has."""
        self._shard_starts = SequenceStarts(self.sizes)
        self._count = int(self.sizes.sum())
        self._tier = tier
        self._bring = bring
        self.opened = OpenShards(self._open)
        if self._count == 0:
            raise ValueError(f"split {split} of {snapshot.dataset} has no sequence of {length} tokens")

    def __len__(self) -> int:
        return self._count

    def empty(self, count: int) -> Tokens:
        """Room for `count` windows, to read into."""
        windows: Tokens = np.empty((count, self.length + 1), self.dtype)
        return windows

    def read(self, numbers: npt.NDArray[np.uint64], out: Tokens | None = None) -> Tokens:
        """The windows with these numbers, in `out` if it is given: [len(numbers), length + 1].

        Raises FileNotFoundError or ValueError for a shard whose file is missing or does not have the described size.
        """
        windows = self.empty(len(numbers)) if out is None else out
        # A slice per row: gathering a whole batch at once is no faster, because rows are long and shards are many.
        for row, (shard_index, start) in enumerate(self.starts(numbers)):
            windows[row] = self.opened[shard_index].tokens[start : start + self.length + 1]
        return windows

    def starts(self, numbers: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
        """The shard of each window, and the window's first token there."""
        return ((shard_index, number * self.length) for shard_index, number in self._shard_starts.of(numbers))

    @property
    def tail_shards(self) -> list[int]:
        """The shards with tokens that no window covers and that have something to predict."""
        rest = [shard.tokens - size * self.length for shard, size in zip(self.shards, self.sizes.tolist(), strict=True)]
        return [shard_index for shard_index, tokens in enumerate(rest) if tokens > 1]

    def tail(self, shard_index: int) -> Tokens:
        """The tokens of a shard that no window covers, [1, 2 .. length + 1]."""
        rest: Tokens = np.array(self.opened[shard_index].tokens[int(self.sizes[shard_index]) * self.length :])
        return rest[None]

    def _open(self, shard_index: int) -> OpenTokens:
        shard = self.shards[shard_index]
        if self._bring is not None:
            self._bring(shard)
        return OpenTokens(*map(np.asarray, shards.open_shard(self._tier, shard, self.dtype.name)))

"""Documented sequences: windows of tokens with the bounds of their documents, for attention that stops at these.

A shard lists where its documents begin (`slipway.trainer.data.shards`), so no token has to mark the end of one.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slipway.trainer.data.sequences import OpenShards, OpenTokens, Sequences, Tokens

Begins = npt.NDArray[np.uint32]


class Documented(NamedTuple):
    """Windows with the bounds of their documents."""

    tokens: Tokens
    """[n, length + 1]."""
    begins: Begins
    """For each token, the place in its window at which its document begins; 0 for one that begins earlier:
    [n, length + 1]."""


class DocumentedSequences:
    """The windows of `Sequences`, with the bounds of the documents in them."""

    def __init__(self, plain: Sequences) -> None:
        self._plain = plain
        self.shards = plain.shards
        self.sizes = plain.sizes

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def opened(self) -> OpenShards[OpenTokens]:
        """The shards that are open."""
        return self._plain.opened

    def empty(self, count: int) -> Documented:
        """Room for `count` windows, to read into."""
        tokens = self._plain.empty(count)
        return Documented(tokens, np.empty(tokens.shape, np.uint32))

    def read(self, numbers: npt.NDArray[np.uint64], out: Documented | None = None) -> Documented:
        """The windows with these numbers, in `out` if it is given. Raises as `Sequences.read`."""
        windows = self.empty(len(numbers)) if out is None else out
        self._plain.read(numbers, windows.tokens)
        for row, (shard_index, start) in enumerate(self._plain.starts(numbers)):
            windows.begins[row] = begins(self.opened[shard_index].offsets, start, self._plain.length + 1)
        return windows

    @property
    def tail_shards(self) -> list[int]:
        """The shards with tokens that no window covers, as `Sequences.tail_shards`."""
        return self._plain.tail_shards

    def tail(self, shard_index: int) -> Documented:
        """The tokens of a shard that no window covers: [1, 2 .. length + 1] of both."""
        tokens = self._plain.tail(shard_index)
        start = int(self.sizes[shard_index]) * self._plain.length
        return Documented(tokens, begins(self.opened[shard_index].offsets, start, tokens.shape[1])[None])


def begins(offsets: npt.NDArray[Any], start: int, length: int) -> Begins:
    """For each of the `length` tokens from `start` on, the index among them at which its document begins: [length].

    offsets: the first token of each document of the shard, ascending, unsigned.
    """
    # With signed numbers beside unsigned ones, numpy would make a copy of all offsets as floating-point numbers.
    first, after = np.searchsorted(offsets, np.array([start, start + length], offsets.dtype))
    edges = np.zeros(after - first + 2, np.int64)
    edges[1:-1] = offsets[first:after]
    edges[-1] = start + length
    edges[1:] -= start
    return np.repeat(edges[:-1].astype(np.uint32), np.diff(edges))

"""Batches: one rank's samples of each step; the next step's are read while the rank trains on the present ones.

A cold disk, or a shard that is still being copied, costs time only if it takes longer than a step.
"""

import functools
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from slipway.trainer.base.background import BackgroundCall
from slipway.trainer.data.documents import Documented
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.loading.order import SampleOrder

Rows = TypeVar("Rows")
"""Tokens, alone or `Documented`, or `Labelled` pictures."""


class Samples(Protocol[Rows]):
    """The samples of a split by number, as `slipway.trainer.data.sequences.Sequences` and
    `slipway.trainer.data.pictures.Pictures`."""

    def empty(self, count: int) -> Rows: ...

    def read(self, numbers: npt.NDArray[np.uint64], out: Rows | None = None) -> Rows: ...


class Batches(Generic[Rows]):
    """The rows `mine` of each step's `size` samples, in `order`, up to step `steps`."""

    def __init__(
        self,
        samples: Samples[Rows],
        order: SampleOrder,
        size: int,
        rank_rows: slice,
        steps: int,
        pinned: bool = False,
        begins: Callable[[int], None] | None = None,
    ) -> None:
        """`pinned` keeps the samples in memory from which a GPU can copy while the CPU continues.

        `begins` is called with each step before its samples are read, in the thread that reads them.
        """
        self._begins = begins
        self._samples, self._order, self._size, self._rank_rows, self._steps = samples, order, size, rank_rows, steps
        buffers = [samples.empty(rank_rows.stop - rank_rows.start) for _ in range(2)]
        self._buffers = [_pinned(buffer) for buffer in buffers] if pinned else buffers
        self._ahead: tuple[int, BackgroundCall[Rows]] | None = None

    def windows(self, step: int) -> Rows:
        """The samples of `step`: [rows, length + 1] tokens or as many pictures, good until the next call.

        Raises what bringing and opening a shard raise, at the step that needs it.
        """
        rows = self._rows_read_ahead(step)
        if rows is None:
            rows = self._read(step)
        if step + 1 < self._steps:
            self._ahead = step + 1, BackgroundCall(functools.partial(self._read, step + 1), "read-ahead")
        return rows

    def _rows_read_ahead(self, step: int) -> Rows | None:
        """The rows of `step` where they were read ahead; None where another step's were, or none."""
        if self._ahead is None:
            return None
        expected, reading = self._ahead
        self._ahead = None
        if expected == step:
            return reading.result()
        # Its thread may still write into the buffer that `step` is read into.
        reading.wait()
        return None

    def follow(self, steps: int) -> None:
        """Go on with another number of steps."""
        self._steps = steps

    def _read(self, step: int) -> Rows:
        if self._begins is not None:
            self._begins(step)
        numbers = self._order.samples(step * self._size, self._size)[self._rank_rows]
        return self._samples.read(numbers, self._buffers[step % 2])


def _pinned(rows: Any) -> Any:
    """An array of the same size, in page-locked memory."""
    if isinstance(rows, Labelled | Documented):
        return type(rows)(*map(_pinned, rows))
    return torch.from_numpy(rows).pin_memory().numpy()

"""Batches: one rank's samples of each step. A thread reads the next step's samples while the rank trains.

So a cold disk, or a shard that is still being copied, costs time only if it takes longer than a step.
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
    """The rows `rank_rows` of each step's `size` samples, in `order`, up to step `steps`."""

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
        """`pinned` puts the samples into page-locked memory, from which a GPU copies while the CPU continues.

        `begins` is called with each step before its samples are read, in the thread that reads them.
        """
        # Which samples.
        self._samples = samples
        self._order = order
        self._size = size
        self._rank_rows = rank_rows
        self._steps = steps

        # How they are read: even and odd steps have a buffer each.
        self._begins = begins
        buffers = [samples.empty(rank_rows.stop - rank_rows.start) for _ in range(2)]
        self._buffers = [_pinned(buffer) for buffer in buffers] if pinned else buffers
        self._ahead: tuple[int, BackgroundCall[Rows]] | None = None
        """The step that is being read ahead."""

    def windows(self, step: int) -> Rows:
        """The samples of `step`: [rows, length + 1] tokens or as many pictures, valid until the next call.

        Raises the errors of bringing and opening a shard, at the step that needs it.
        """
        rows = self._rows_read_ahead(step)
        if rows is None:
            rows = self._read(step)
        if step + 1 < self._steps:
            self._ahead = step + 1, BackgroundCall(functools.partial(self._read, step + 1), "read-ahead")
        return rows

    def _rows_read_ahead(self, step: int) -> Rows | None:
        """The rows of `step` if they were read ahead; else None."""
        if self._ahead is None:
            return None
        expected, reading = self._ahead
        self._ahead = None
        if expected == step:
            return reading.result()
        # Its thread may still write into the buffer for `step`.
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

"""Micro-batches: a rank's share of a batch in parts that go through the model one at a time.

Every rank has equally many parts: where ranks communicate inside the model (divided weights, pipelines, batch
normalisation over all ranks), they must call it equally often. Shares differ by a sample, and so do parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.data.pictures import Labelled
from trainer.loading.order import rank_slice
from trainer.models.model import Data, Rows, SampleNumbers


@dataclass(frozen=True)
class MicroBatch:
    """One part of a rank's share."""

    rows: Rows
    places: SampleNumbers
    real: int
    """The first `real` rows are samples of the share; the rest is blank, and counts in no loss and no gradient."""


def cut(rows: Rows, places: SampleNumbers, count: int, size: int) -> Iterator[MicroBatch]:
    """`count` parts of equal size, give or take a sample, each filled with blank samples up to at least `size`."""
    for index in range(count):
        which = rank_slice(len(places), index, count)
        real = which.stop - which.start
        blank = max(0, size - real)
        yield MicroBatch(_filled(_rows(rows, which), blank), _fill(places[which], blank), real)


def blank(data: Data, count: int) -> Rows:
    """`count` samples of `data` without content."""
    if any(data.picture):
        return Labelled(np.zeros((count, *data.picture), np.uint8), np.zeros(count, np.int64))
    return np.zeros((count, data.length + 1), np.uint16)


def _rows(rows: Rows, which: slice) -> Rows:
    return Labelled(rows.pixels[which], rows.labels[which]) if isinstance(rows, Labelled) else rows[which]


def _filled(rows: Rows, blank: int) -> Rows:
    if isinstance(rows, Labelled):
        return Labelled(_fill(rows.pixels, blank), _fill(rows.labels, blank))
    return _fill(rows, blank)


def _fill(values: npt.NDArray[Any], blank: int) -> npt.NDArray[Any]:
    """Zeros appended along the first dimension."""
    if not blank:
        return values
    return np.concatenate([values, np.zeros((blank, *values.shape[1:]), values.dtype)])

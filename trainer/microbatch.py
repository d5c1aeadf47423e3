"""Micro-batches: a rank's share of a batch in parts that go through the model one at a time.

Every rank has equally many parts, as those that meet inside the model (divided weights, pipelines, batch
normalisation over all ranks) must call it equally often; shares differ by a sample, and so do parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.models.model import Places, Rows
from trainer.order import share
from trainer.pictures import Labelled


@dataclass(frozen=True)
class Part:
    rows: Rows
    places: Places
    real: int
    """The first ones are samples of the share; what follows is blank, and nothing is lost or learnt on it."""


def cut(rows: Rows, places: Places, count: int, size: int) -> Iterator[Part]:
    """`count` parts as equal as can be, each filled up to at least `size` samples with blank ones."""
    for index in range(count):
        which = share(len(places), index, count)
        real = which.stop - which.start
        blank = max(0, size - real)
        yield Part(_filled(_rows(rows, which), blank), _fill(places[which], blank), real)


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

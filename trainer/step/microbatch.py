"""Micro-batches: a rank's share of a batch in parts that go through the model one at a time.

Every rank has equally many parts, because ranks that communicate inside the model (divided weights, pipelines, batch
normalisation over all ranks) must call it equally often. Shares may differ by a sample, and so may parts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slipway.trainer.config.layout import micro_batches
from slipway.trainer.data.documents import Documented
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.loading.order import rank_slice
from slipway.trainer.models.model import Data, Rows, SampleNumbers


@dataclass(frozen=True)
class MicroBatch:
    """One part of a rank's share."""

    rows: Rows
    sample_ids: SampleNumbers
    real: int
    """The first `real` rows are samples of the share; the others are blank, and add nothing to losses and gradients."""


def alike_parts(sequences: int, micro: int, shares: int, rounds: int) -> tuple[int, int]:
    """The number of parts of every share of a batch, a multiple of `rounds`, and the samples of the largest part."""
    count = -(-micro_batches(sequences, micro, shares) // rounds) * rounds
    return count, -(-sequences // shares // count)


def cut(rows: Rows, sample_ids: SampleNumbers, count: int, size: int) -> Iterator[MicroBatch]:
    """`count` parts of equal size, give or take a sample, each filled with blank samples up to at least `size`."""
    for index in range(count):
        which = rank_slice(len(sample_ids), index, count)
        real = which.stop - which.start
        blank = max(0, size - real)
        yield MicroBatch(_filled(_rows(rows, which), blank), _fill(sample_ids[which], blank), real)


def blank(data: Data, count: int, documents: bool = False) -> Rows:
    """`count` blank samples of `data`, with the bounds of their documents if the model reads them (`documents`)."""
    if any(data.picture):
        return Labelled(np.zeros((count, *data.picture), np.uint8), np.zeros(count, np.int64))
    tokens = np.zeros((count, data.length + 1), np.uint16)
    return Documented(tokens, np.zeros(tokens.shape, np.uint32)) if documents else tokens


def joined(parts: Sequence[Rows]) -> Rows:
    """The samples of several parts, one after the other."""
    first: Any = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
    rows: Rows = type(first)(*map(np.concatenate, zip(*parts, strict=True)))
    return rows


def _rows(rows: Rows, which: slice) -> Rows:
    return _with_each(rows, lambda values: values[which])


def _filled(rows: Rows, blank: int) -> Rows:
    return _with_each(rows, lambda values: _fill(values, blank))


def _with_each(rows: Rows, change: Callable[[npt.NDArray[Any]], Any]) -> Rows:
    """The rows with each of their arrays changed."""
    kind: Any = type(rows)
    result: Rows = kind(*map(change, rows)) if isinstance(rows, Labelled | Documented) else change(rows)
    return result


def _fill(values: npt.NDArray[Any], blank: int) -> npt.NDArray[Any]:
    """Zeros appended along the first dimension."""
    if not blank:
        return values
    return np.concatenate([values, np.zeros((blank, *values.shape[1:]), values.dtype)])

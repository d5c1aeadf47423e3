"""Clusters: which of many rows are connected, directly or through others, as their connections come a few at a time.

A forest of disjoint sets (Tarjan 1975) over numpy arrays: memory holds 16 bytes for each row, however many connections
there are. A set is known by its smallest row.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS_AT_ONCE = 1 << 16

Rows = npt.NDArray[np.int64]
Places = npt.NDArray[Any]
"""Integers, of whichever width numpy gives places."""


class Clusters:
    """Rows, of which each is alone at first."""

    def __init__(self, rows: Rows) -> None:
        """`rows` are ascending, each once."""
        self.rows = rows
        self._above: Places = np.arange(len(rows))
        """For each row the place of a row of its cluster that is not larger: its own where it is the smallest."""

    def connect(self, ours: Rows, others: Rows) -> None:
        """Each row of `ours` is connected with the row of `others` at its place; both are rows of these."""
        these, those = np.searchsorted(self.rows, ours), np.searchsorted(self.rows, others)
        while len(these):
            these, those = self._shortened(these), self._shortened(those)
            apart = these != those
            these, those = these[apart], those[apart]
            # One of several connections of a row counts, the others in the next round. A row is never put below a
            # larger one, so there is no circle.
            np.minimum.at(self._above, np.maximum(these, those), np.minimum(these, those))

    def of(self, rows: Rows) -> Rows:
        """The smallest row of the cluster of each of these rows."""
        return np.asarray(self.rows[self._shortened(np.searchsorted(self.rows, rows))])

    def distinct(self, ours: Rows, others: Rows) -> tuple[Rows, Rows]:
        """Each pair of a row of `ours` and the row of `others` at its place, once."""
        these, those = np.searchsorted(self.rows, ours), np.searchsorted(self.rows, others)
        # As one number, which is sorted twenty times faster than pairs: two places have less than 63 bits.
        these, those = np.divmod(np.unique(these * len(self.rows) + those), max(len(self.rows), 1))
        return self.rows[these], self.rows[those]

    def firsts(self) -> Iterator[tuple[Rows, Rows]]:
        """The rows, some at a time in their order, and for each the smallest row of its cluster."""
        for begin in range(0, len(self.rows), ROWS_AT_ONCE):
            places = np.arange(begin, min(begin + ROWS_AT_ONCE, len(self.rows)))
            yield self.rows[places], self.rows[self._shortened(places)]

    def _shortened(self, places: Places) -> Places:
        """The smallest place of the cluster of each place, which is directly above it from now on."""
        smallest = self._above[places]
        while not np.array_equal(further := self._above[smallest], smallest):
            smallest = further
        self._above[places] = smallest
        return smallest

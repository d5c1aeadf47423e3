"""Spikes: whether a loss is far above the last ones of its training. Pure.

Two things must hold. The loss is many robust standard deviations above the median of the last ones; and it is twice as
far above that median as what came several times. The first alone would be wrong wherever losses are not spread like a
bell: in a training whose batches are of two kinds, one in ten of them with a higher loss, that tenth would be thousands
of deviations away. What a training has had several times lately is how this training is.

Nothing is held against a fixed number: losses are as large as their model and data make them.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

from slipway.trainer.recovery import statistics

WINDOW = 256
"""A loss is held against so many before it: one batch in fifty of another kind is among them several times."""
FEWEST = 32
"""Of these, so many must be there: the first losses of a training fall fast."""
LEAST_DEVIATION = 0.01
"""Losses within a hundredth of their median are alike."""
KNOWN = 2
"""As often as this among the last losses, a loss is no surprise. One spike alone hides no second one."""
HIGHER = 2.0
"""A surprise is so many times as far above the median as what is known."""


class LastLosses:
    """The last losses of a training. To judge one takes a few microseconds."""

    def __init__(self, losses: Iterable[float] = ()) -> None:
        """`losses` are those so far, in the order of their steps."""
        self._in_order = deque(losses, maxlen=WINDOW)
        self._sorted = sorted(self._in_order)

    @property
    def in_order(self) -> list[float]:
        """In the order of their steps."""
        return list(self._in_order)

    @property
    def median(self) -> float:
        """The lower one of the two in the middle; there must be one."""
        return self._sorted[(len(self._sorted) - 1) // 2]

    def add(self, loss: float) -> None:
        """Take in the loss of one more step, which must be finite."""
        if len(self._in_order) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._in_order[0])]
        self._in_order.append(loss)
        insort(self._sorted, loss)

    def is_spike(self, loss: float, least_sigmas: float) -> bool:
        """Whether `loss` is so many robust standard deviations above the last ones, and higher than what is known."""
        if len(self._sorted) < FEWEST:
            return False
        known = self._sorted[-KNOWN] - self.median
        if loss <= self.median or loss - self.median < HIGHER * known:  # nearly always, so that no more is computed
            return False
        return statistics.sigmas(loss, self._sorted, LEAST_DEVIATION) >= least_sigmas

"""Outliers: numbers that are far from the others of their kind, such as a loss far above the last ones. Pure.

The median and the median absolute deviation do not move when a few numbers are arbitrarily wrong, as a mean and a
standard deviation do (Huber, Robust Statistics, 1981).
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence

LOSS_WINDOW = 256
"""A loss is held against so many before it: one batch in fifty of another kind is among them several times."""
FEWEST_LOSSES = 32
"""Of these, so many must be there: the first losses of a training fall fast."""
LEAST_DEVIATION = 0.01
"""Losses within a hundredth of their median are alike."""
KNOWN = 2
"""As often as this among the last losses, a loss is no surprise. One spike alone hides no second one."""
HIGHER = 2.0
"""A surprise is so many times as far above the median as what is known."""
NORMAL = 1.4826
"""The standard deviation of a normal distribution, divided by its median absolute deviation."""


def median(numbers: Sequence[float]) -> float:
    """The middle one, or the lower one of the two in the middle: it is always one of the numbers."""
    return sorted(numbers)[(len(numbers) - 1) // 2]


def sigmas(number: float, others: Sequence[float], least: float) -> float:
    """How many robust standard deviations `number` is above the median of `others`, which are not empty.

    The deviation counts as the share `least` of the median at the least: numbers that hardly differ make no other
    number far.
    """
    middle = median(others)
    deviation = NORMAL * median([abs(value - middle) for value in others])
    return (number - middle) / max(deviation, least * abs(middle), 1e-12)


class LastLosses:
    """The last losses of a training, against which the next one is held. To judge one takes a few microseconds.

    Two things must hold for a spike. The loss is many robust standard deviations above the median of the last ones; and
    it is twice as far above that median as what came several times. The first alone would be wrong wherever losses are
    not spread like a bell: in a training whose batches are of two kinds, one in ten of them with a higher loss, that
    tenth would be thousands of deviations away. What a training has had several times lately is how this training is.

    Nothing is held against a fixed number: losses are as large as their model and data make them.
    """

    def __init__(self, losses: Iterable[float] = ()) -> None:
        """`losses` are those so far, in the order of their steps."""
        self._in_order = deque(losses, maxlen=LOSS_WINDOW)
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
        if len(self._in_order) == LOSS_WINDOW:
            del self._sorted[bisect_left(self._sorted, self._in_order[0])]
        self._in_order.append(loss)
        insort(self._sorted, loss)

    def is_spike(self, loss: float, least_sigmas: float) -> bool:
        """Whether `loss` is so many robust standard deviations above the last ones, and higher than what is known."""
        if len(self._sorted) < FEWEST_LOSSES:
            return False
        known = self._sorted[-KNOWN] - self.median
        if loss <= self.median or loss - self.median < HIGHER * known:  # nearly always, so that no more is computed
            return False
        return sigmas(loss, self._sorted, LEAST_DEVIATION) >= least_sigmas

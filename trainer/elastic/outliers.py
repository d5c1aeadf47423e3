"""Outliers: numbers that are far from the others of their kind, such as a loss far above the last ones.

A few arbitrarily wrong numbers do not move the median and the median absolute deviation. They would move a mean and a
standard deviation (Huber, Robust Statistics, 1981).
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence

LOSS_WINDOW = 256
"""A loss is compared with this many before it. If one batch in fifty is of another kind, several are among them."""
FEWEST_LOSSES = 32
"""Before this many losses there is no judgement: the first losses of a training fall fast."""
LEAST_DEVIATION = 0.01
"""Losses within a hundredth of their median count as equal."""
KNOWN = 2
"""A height that this many of the last losses have reached is no surprise. So one spike does not hide a second one."""
HIGHER = 2.0
"""A spike is at least this many times as far above the median as a known height."""
NORMAL = 1.4826
"""The standard deviation of a normal distribution, divided by its median absolute deviation."""


def median(numbers: Sequence[float]) -> float:
    """The lower median: always one of the numbers."""
    return sorted(numbers)[(len(numbers) - 1) // 2]


def sigmas(number: float, others: Sequence[float], least: float) -> float:
    """How many robust standard deviations `number` is above the median of `others`, which must not be empty.

    The deviation is at least the fraction `least` of the median: among numbers that hardly differ, a small difference
    makes no outlier.
    """
    middle = median(others)
    deviation = NORMAL * median([abs(value - middle) for value in others])
    return (number - middle) / max(deviation, least * abs(middle), 1e-12)


class LastLosses:
    """The last losses of a training, with which the next one is compared. A comparison takes a few microseconds.

    A spike meets two conditions. The loss is many robust standard deviations above the median of the last ones, and it
    is twice as far above that median as a height that several of them have reached. The first condition alone fails if
    losses are not normally distributed: if one batch in ten is of a kind with a higher loss, all of these are thousands
    of deviations away. A height that recurs is normal for this training.

    There is no fixed threshold: the size of a loss depends on model and data.
    """

    def __init__(self, losses: Iterable[float] = ()) -> None:
        """`losses`: the losses so far, in the order of their steps."""
        self._in_order = deque(losses, maxlen=LOSS_WINDOW)
        self._sorted = sorted(self._in_order)

    @property
    def in_order(self) -> list[float]:
        """The losses in the order of their steps."""
        return list(self._in_order)

    @property
    def median(self) -> float:
        """The lower median; there must be a loss."""
        return self._sorted[(len(self._sorted) - 1) // 2]

    def add(self, loss: float) -> None:
        """Add the loss of one more step, which must be finite."""
        if len(self._in_order) == LOSS_WINDOW:
            del self._sorted[bisect_left(self._sorted, self._in_order[0])]
        self._in_order.append(loss)
        insort(self._sorted, loss)

    def is_spike(self, loss: float, least_sigmas: float) -> bool:
        """Whether `loss` is `least_sigmas` robust standard deviations above the last ones, and above known heights."""
        if len(self._sorted) < FEWEST_LOSSES:
            return False
        known = self._sorted[-KNOWN] - self.median
        if loss <= self.median or loss - self.median < HIGHER * known:  # the cheap check, which nearly always decides
            return False
        return sigmas(loss, self._sorted, LEAST_DEVIATION) >= least_sigmas

"""Robust statistics: how far a number is from others, where some of the others may be far off themselves. Pure.

The median and the median absolute deviation do not move when a few numbers are arbitrarily wrong, as a mean and a
standard deviation do (Huber, Robust Statistics, 1981).
"""

from collections.abc import Sequence

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
    deviation = NORMAL * median([abs(each - middle) for each in others])
    return (number - middle) / max(deviation, least * abs(middle), 1e-12)

"""Proportions: how much seldomer one model is right than another on the same questions, with an interval.

The score interval of the difference of two paired proportions (Tango, Statistics in Medicine 17, 1998): it holds where
few questions or none are answered differently by the two, which is where a bootstrap finds no spread. No files here.
"""

import math
from statistics import NormalDist

import numpy as np

from slipway.assets.gates.paired import PairedDifference, Values

STEPS = 60
"""Halvings of the interval's search: below what a float tells apart."""


def compare(candidate: Values, champion: Values, confidence: float) -> PairedDifference:
    """By how much the champion's share of right answers is above the candidate's; both arrays: [examples], 0 or 1.

    `confidence` is that of each end alone. Raises ValueError for arrays of different lengths, and without an example.
    """
    if len(candidate) != len(champion) or not len(candidate):
        raise ValueError(f"found {len(candidate)} and {len(champion)} answers, expected the same questions for both")
    count = len(candidate)
    worse, better = int(((champion == 1) & (candidate == 0)).sum()), int(((champion == 0) & (candidate == 1)).sum())
    mean, limit = (worse - better) / count, NormalDist().inv_cdf(confidence)
    low = _end(worse, better, count, limit, mean, -1.0)
    high = _end(worse, better, count, -limit, mean, 1.0)
    return PairedDifference(mean, low, high, count, confidence)


def are_shares(values: Values) -> bool:
    """Whether each value is 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def _end(worse: int, better: int, count: int, score: float, inside: float, outside: float) -> float:
    """The difference between `inside` and `outside` whose score is this one; `outside` where even that one's is not."""
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if abs(_score(worse, better, count, middle)) < abs(score):
            inside = middle
        else:
            outside = middle
    return (inside + outside) / 2


def _score(worse: int, better: int, count: int, difference: float) -> float:
    """Tango's statistic of a difference: standard normal where it is the true one (his equations 8 and 9)."""
    a = 2 * count
    b = -worse - better + (2 * count - worse + better) * difference
    c = -better * difference * (1 - difference)
    likely = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = count * (2 * likely + difference * (1 - difference))
    found = worse - better - count * difference
    return found / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, found) if found else 0.0

"""Paired comparison: the difference of two models' losses on the same examples, with a confidence interval.

Both models are measured on each example, so an example's difficulty is the same for both and cancels out. The result
is the difference of their losses summed over all examples, divided by the summed size of the examples (bytes of text,
or predictions): a ratio of sums, like bits per byte. Examples are resampled with replacement, and the interval is the
studentised bootstrap's (Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, 12.5; Hall, Annals of Statistics
16, 1988). Its error falls with 1/n, while the error of percentiles falls with 1/sqrt(n) and promotes too many models on
skewed losses. If few examples decide, even this interval is too narrow: a sample that lacks the rare text on which the
candidate is far worse shows both a small difference and a small error. Then wider ends are taken (`tail`).

Right and wrong answers to the same questions are compared by the score interval of the difference of two paired
proportions (Tango, Statistics in Medicine 17, 1998). It is valid even if the models answer few questions or none
differently, where a bootstrap finds no spread. This module uses no Dagster, no torch and no files.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

DRAWS = 4000
"""The number of resamples: an end of the interval at 97.5 % rests on 100 of them, and one at 99.9 % on 4."""
CONFIDENCE = 0.975
"""The confidence of each end: a model that is worse by exactly the margin passes once in 40 times. Both ends together
cover 95 %."""
AT_ONCE = 2_000_000
"""The most drawn examples in memory at the same time."""
WIDENING = 100.0
"""The effective number of examples at which the share beyond an end is halved; fitted to simulated texts
(benchmarks/RESULTS.md, "The gate")."""
FEWEST = 8
"""The fewest examples for an interval."""
Values = npt.NDArray[np.float64]
STEPS = 60
"""Bisection steps of the interval's search, enough to reach a float's precision."""


@dataclass(frozen=True)
class PairedDifference:
    """The candidate's loss less the champion's, per unit of size; below 0 the candidate is better."""

    mean: float
    low: float
    """The lower end of the interval; minus infinity with fewer than `FEWEST` examples."""
    high: float
    examples: int
    confidence: float
    """The confidence that the true difference is below `high`, and likewise that it is above `low`; each end alone."""


def compare(
    candidate: Values, champion: Values, sizes: Values, seed: int, confidence: float = CONFIDENCE, draws: int = DRAWS
) -> PairedDifference:
    """The difference of losses summed over examples, divided by their summed sizes; all arrays: [examples].

    The same seed gives the same interval. It takes O(draws x examples) time and bounded memory. Raises ValueError for
    arrays of different lengths, without an example, or with a loss that is not finite.
    """
    if not len(candidate) == len(champion) == len(sizes):
        counts = f"{len(candidate)}, {len(champion)} and {len(sizes)}"
        raise ValueError(f"found {counts} examples, expected the same examples for both models")
    differences = np.asarray(candidate, np.float64) - np.asarray(champion, np.float64)
    if not len(sizes) or not np.isfinite(differences).all() or not sizes.sum() > 0:
        raise ValueError("found no example, or a loss that is not finite, expected finite losses of examples with size")
    mean = float(differences.sum() / sizes.sum())
    if len(sizes) < FEWEST:
        return PairedDifference(mean, -math.inf, math.inf, len(sizes), confidence)
    error = float(_errors(differences, sizes.astype(np.float64), np.array([mean]))[0])
    if error == 0:
        return PairedDifference(mean, mean, mean, len(sizes), confidence)
    statistics = _studentised(differences, sizes.astype(np.float64), mean, seed, draws)
    missed = tail(differences - mean * sizes, confidence)
    below, above = map(float, np.quantile(statistics, [missed, 1 - missed]))  # records hold no numbers of numpy
    return PairedDifference(mean, mean - above * error, mean - below * error, len(sizes), confidence)


def interval_of(losses: Values, sizes: Values, seed: int, confidence: float = CONFIDENCE) -> PairedDifference:
    """The mean loss of one model per unit of size, with its interval: the difference from a loss of 0."""
    return compare(losses, np.zeros(len(losses)), sizes, seed, confidence)


def tail(influence: Values, confidence: float) -> float:
    """The share of resamples beyond each end: 1 - confidence if many examples decide, less if few do.

    `influence` is the residual by which each example moves the ratio, [examples], in any unit. The number of examples
    that decide is 1.5 (sum of squares)² / sum of fourth powers: half of all for normal residuals, and one or two if one
    example outweighs the rest.
    """
    squares = influence**2
    effective = float(1.5 * squares.sum() ** 2 / (squares**2).sum())
    return (1 - confidence) * effective / (effective + WIDENING)


def compare_proportions(candidate: Values, champion: Values, confidence: float) -> PairedDifference:
    """The champion's share of right answers less the candidate's; both arrays: [examples], 0 or 1.

    `confidence` applies to each end alone. Raises ValueError for arrays of different lengths, and without an example.
    """
    if len(candidate) != len(champion) or not len(candidate):
        raise ValueError(f"found {len(candidate)} and {len(champion)} answers, expected the same questions for both")
    count = len(candidate)
    worse = int(((champion == 1) & (candidate == 0)).sum())
    better = int(((champion == 0) & (candidate == 1)).sum())
    mean = (worse - better) / count
    limit = NormalDist().inv_cdf(confidence)
    low = _end(worse, better, count, limit, mean, -1.0)
    high = _end(worse, better, count, -limit, mean, 1.0)
    return PairedDifference(mean, low, high, count, confidence)


def are_shares(values: Values) -> bool:
    """Whether each value is 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def _studentised(differences: Values, sizes: Values, mean: float, seed: int, draws: int) -> Values:
    """The distance of each resample's ratio from the mean, in its own standard errors: [draws]."""
    generator = np.random.default_rng(seed)
    count = len(sizes)
    statistics = []
    at_once = max(1, AT_ONCE // count)
    for first in range(0, draws, at_once):
        drawn = generator.integers(0, count, (min(at_once, draws - first), count))
        some = differences[drawn]
        widths = sizes[drawn]
        means = some.sum(1) / widths.sum(1)
        errors = _errors(some, widths, means)
        statistics.append(np.divide(means - mean, errors, out=np.zeros_like(means), where=errors > 0))
    return np.concatenate(statistics)


def _errors(differences: Values, sizes: Values, means: Values) -> Any:
    """The standard error of a ratio of sums for each row, by linearisation: [rows] (or [1] for one row)."""
    some = np.atleast_2d(differences)
    widths = np.atleast_2d(sizes)
    residuals = some - means[:, None] * widths
    count = some.shape[1]
    return np.sqrt((residuals**2).sum(1) * count / (count - 1)) / widths.sum(1)


def _end(worse: int, better: int, count: int, score: float, inside: float, outside: float) -> float:
    """The difference between `inside` and `outside` with this score; `outside` if none has it."""
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if abs(_score(worse, better, count, middle)) < abs(score):
            inside = middle
        else:
            outside = middle
    return (inside + outside) / 2


def _score(worse: int, better: int, count: int, difference: float) -> float:
    """Tango's statistic of a difference, which is standard normal for the true one (his equations 8 and 9)."""
    a = 2 * count
    b = -worse - better + (2 * count - worse + better) * difference
    c = -better * difference * (1 - difference)
    likely = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = count * (2 * likely + difference * (1 - difference))
    excess = worse - better - count * difference
    if variance > 0:
        return excess / math.sqrt(variance)
    if excess:
        return math.copysign(math.inf, excess)
    return 0.0

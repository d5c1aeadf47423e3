"""Ties: two values of a rung within their noise do not show which trial is better."""

import math
import statistics
from collections.abc import Mapping

Reports = Mapping[int, float | None]
"""The value of a trial at each step that it reported."""
ENOUGH = 5
"""The fewest reports from which the noise of a trial is estimated."""
WINDOW = 24
"""The number of last reports of a trial to use, because the noise changes along a curve."""
SIGMAS = 1.0
"""Two values are tied if their difference is within this many standard deviations.

More keeps more of the best and costs more: on the curves of `benchmarks.sweep` (64 trials), 0 saved 94.4 % of the steps
and came within .005 of the best in 6 of 10 seeds, 1 saved 93.5 % (9 of 10), 2 saved 92.5 % (9 of 10)."""


def band(reports: Reports, other: Reports, step: int, known_noise: float | None) -> float | None:
    """The difference within which two trials are tied at `step`: `known_noise`, or estimated from their reports.

    The deviation of a difference is the root of the sum of both variances. None if it is unknown: then no two values
    are tied.
    """
    if known_noise is not None:
        return known_noise
    one = noise(reports, step)
    two = noise(other, step)
    if one is None or two is None:
        return None
    return SIGMAS * math.hypot(one, two)


def are_tied(
    better: float, worse: float, reports: tuple[Reports, Reports], step: int, known_noise: float | None
) -> bool:
    """Whether two values of a rung are within their noise, given the reports of both trials."""
    margin = band(*reports, step, known_noise)
    return margin is not None and worse - better <= margin


def noise(reports: Reports, step: int) -> float | None:
    """The standard deviation of a trial's value around its smooth curve, from its reports up to `step`.

    The median of the second differences' sizes: those of a smooth curve are near 0, and of independent noise they have
    6 times its variance; 0.6745 is the median size of a standard normal number (Gasser, Sroka and Jennen-Steinmetz,
    Biometrika 1986). None for fewer than `ENOUGH` reports.
    """
    values = [reports[rung] for rung in sorted(reports) if rung <= step][-WINDOW:]
    finite = [value for value in values if value is not None]
    if len(finite) < ENOUGH:
        return None
    seconds = [abs(a - 2 * b + c) for a, b, c in zip(finite, finite[1:], finite[2:], strict=False)]
    return statistics.median(seconds) / (0.6745 * math.sqrt(6))

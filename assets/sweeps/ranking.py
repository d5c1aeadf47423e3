"""Agreement of rungs: if low rungs rank trials differently from high ones, halving has stopped the wrong trials.

Only trials that continued have values at both rungs, and they are the best of the lower rung. This hides the agreement
(restriction of range), so a low correlation is a warning, not a proof.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.assets.sweeps.state import SweepState

ENOUGH = 6
"""The fewest trials at both rungs for a meaningful correlation."""
LOW = 0.3
"""The correlation below which the report warns."""


@dataclass(frozen=True)
class RungAgreement:
    """The agreement of two rungs about the trials that reached both."""

    lower: int
    higher: int
    """Steps; the full length is the last rung."""
    correlation: float
    """Spearman's rank correlation, -1 to 1; ties have their mean rank."""
    trials: int


def agreement(sweep: SweepState) -> tuple[RungAgreement, ...]:
    """The agreement of each rung with the next one, without pairs of rungs that too few trials have reached."""
    agreements = []
    for lower, higher in itertools.pairwise((*sweep.rungs, sweep.plan.steps)):
        values = [(trial.reports.get(lower), trial.reports.get(higher)) for trial in sweep.trials.values()]
        pairs = [(low, high) for low, high in values if low is not None and high is not None]
        if len(pairs) >= ENOUGH:
            correlation = spearman([low for low, _ in pairs], [high for _, high in pairs])
            agreements.append(RungAgreement(lower, higher, correlation, len(pairs)))
    return tuple(agreements)


def warning(sweep: SweepState) -> str | None:
    """The report's warning about a rung that disagrees with the next one; None if all agree or trials are too few."""
    unlike = [rung for rung in agreement(sweep) if rung.correlation < LOW]
    if not unlike:
        return None
    worst = min(unlike, key=lambda rung: rung.correlation)
    return (
        f"step {worst.lower} hardly ranks trials as step {worst.higher} does (rank correlation {worst.correlation:.2f} "
        f"over the {worst.trials} trials that went on): stopping there may have cost the best. A later first rung, or "
        "hyperband, trusts early steps less"
    )


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation of paired values; 0 if all values of one side are equal."""
    ranks = _ranks(one), _ranks(other)
    if any(len(set(one_side)) == 1 for one_side in ranks):
        return 0.0
    return statistics.correlation(*ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share their mean rank."""
    ordered = sorted(values)
    first = {value: rank for rank, value in reversed(list(enumerate(ordered, start=1)))}
    last = {value: rank for rank, value in enumerate(ordered, start=1)}
    return [(first[value] + last[value]) / 2 for value in values]

"""Whether low rungs rank trials as high ones do: if they do not, halving stopped trials that it should not have.

Only trials that went on have values at both rungs, and they are the best of the lower one. That hides the agreement
(restriction of range), so a low correlation is a warning and no proof.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.assets.sweeps.state import SweepState

ENOUGH = 6
"""The fewest trials at both rungs of which a correlation says anything."""
LOW = 0.3
"""Below this correlation the report warns."""


@dataclass(frozen=True)
class RungAgreement:
    """How alike two rungs rank the trials that came to both."""

    lower: int
    higher: int
    """Steps; the full length is the last rung."""
    correlation: float
    """Spearman's rank correlation, -1 to 1; ties have their mean rank."""
    trials: int


def agreement(sweep: SweepState) -> tuple[RungAgreement, ...]:
    """For each rung and the next one, over the trials that have values at both; without pairs of too few trials."""
    agreements = []
    for lower, higher in itertools.pairwise((*sweep.rungs, sweep.plan.steps)):
        pairs = [
            (low, high)
            for trial in sweep.trials.values()
            if (low := trial.reports.get(lower)) is not None and (high := trial.reports.get(higher)) is not None
        ]
        if len(pairs) >= ENOUGH:
            correlation = spearman([low for low, _ in pairs], [high for _, high in pairs])
            agreements.append(RungAgreement(lower, higher, correlation, len(pairs)))
    return tuple(agreements)


def warning(sweep: SweepState) -> str | None:
    """What the report says when a rung ranks trials unlike the next one; None when all agree, or too few tell."""
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
    """Spearman's rank correlation of paired values; 0 when all of one side are equal."""
    ranks = _ranks(one), _ranks(other)
    if any(len(set(one_side)) == 1 for one_side in ranks):
        return 0.0
    return statistics.correlation(*ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1, equal ones with the mean of theirs."""
    ordered = sorted(values)
    first = {value: rank for rank, value in reversed(list(enumerate(ordered, start=1)))}
    last = {value: rank for rank, value in enumerate(ordered, start=1)}
    return [(first[value] + last[value]) / 2 for value in values]

"""Asynchronous successive halving, the stopping variant: which trials go on past a rung.

Source: ASHA, Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (arXiv:1810.05934).
The paper promotes the best floor(n / eta) of a rung and lets the others wait there. Here no trial waits, since
a waiting trial holds its GPUs: each is judged once, when it arrives, against those that arrived before it, and
stops unless it is among the best ceil(n / eta). Rounding up lets the first arrival go on.
"""

from collections.abc import Sequence
from typing import Literal

Verdict = Literal["go on", "stop"]


def rungs(first: int, steps: int, eta: int) -> tuple[int, ...]:
    """The rungs first, first * eta, first * eta^2, ... below `steps`, where a trial is complete anyway.

    The first rung belongs where learning curves have begun to part: what it stops is gone, however fast it would
    have learnt later. Computed in whole numbers: by logarithms the top rung of 243 steps with eta 3 gets lost.
    Raises ValueError unless first >= 1 and eta >= 2.
    """
    if first < 1 or eta < 2:
        raise ValueError(f"found first rung {first} and eta {eta}, expected a rung of 1 or more and eta of 2 or more")
    found = []
    while first < steps:
        found.append(first)
        first *= eta
    return tuple(found)


def rung_reached(rungs: Sequence[int], step: int) -> int | None:
    """The highest rung at or below `step`, None below the first."""
    return max((rung for rung in rungs if rung <= step), default=None)


def verdict(earlier: Sequence[float | None], value: float | None, eta: int) -> Verdict:
    """Whether a trial that arrives at a rung with `value` goes on; lower is better, None (not finite) stops.

    `earlier` are the values of those that arrived before, in any order: whoever arrived, stopped or not, counts.
    A tie goes to the one that came first, so that a plateau of equal values is thinned like any other. What is
    strictly better than all before goes on, so the best trial of a rung is never stopped there.
    """
    if value is None:
        return "stop"
    rank = 1 + sum(other is not None and other <= value for other in earlier)
    arrived = len(earlier) + 1
    return "go on" if rank <= -(-arrived // eta) else "stop"

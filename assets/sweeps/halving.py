"""Asynchronous successive halving, the stopping variant: which trials go on past a rung.

Source: ASHA, Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (arXiv:1810.05934).
The paper promotes the best floor(n / eta) trials of a rung and lets the others wait there. Here no trial waits,
because a waiting trial holds its GPUs: each trial is judged once, when it arrives, against those that arrived before
it, and stops unless it is among the best ceil(n / eta). Rounding up lets the first arrival go on.
"""

from collections.abc import Sequence
from typing import Literal

Verdict = Literal["go on", "stop"]


def rung_reached(rungs: Sequence[int], step: int) -> int | None:
    """The highest rung at or below `step`, None below the first."""
    return max((rung for rung in rungs if rung <= step), default=None)


def verdict(earlier: Sequence[float | None], value: float | None, eta: int) -> Verdict:
    """Whether a trial that arrives at a rung with `value` goes on; lower is better, None (not finite) stops.

    `earlier` are the values of the trials that arrived before, in any order, whether or not they were stopped.
    Of equal values the earlier ranks better, so equal trials are stopped like any others. A value below all earlier
    ones goes on, so the best trial of a rung is never stopped there.
    """
    if value is None:
        return "stop"
    rank = 1 + sum(other is not None and other <= value for other in earlier)
    arrived = len(earlier) + 1
    return "go on" if rank <= -(-arrived // eta) else "stop"

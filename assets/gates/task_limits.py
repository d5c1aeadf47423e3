"""Task limits: what the gate's policy says of a candidate's answers to generation tasks. Pure.

A task's metric is a number of each example, more is better: 1 for a right answer, or a score from 0 to 1. Answers that
are right or wrong are compared by `slipway.assets.gates.proportions`, scores by `slipway.assets.gates.paired`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipway.assets.gates import paired, proportions
from slipway.assets.gates.checks import CheckOutcome
from slipway.assets.gates.paired import PairedDifference, Values
from slipway.recipes.gate import GateSection, TaskLimit


@dataclass(frozen=True)
class TaskRivals:
    """The answers of two models to one task."""

    candidate: Mapping[str, Values]
    """By metric: [examples]."""
    champion: Mapping[str, Values] | None = None
    """On the same examples; None where nobody is compared with."""


def check(policy: GateSection, found: Mapping[str, TaskRivals], seed: int) -> CheckOutcome:
    """Whether each task is within its limits; tasks without one are shown. `found` is by task."""
    broken, shown = [], dict[str, dict[str, Any]]()
    for task, rivals in sorted(found.items()):
        limit = policy.tasks.get(task, TaskLimit())
        metric = limit.metric or min(rivals.candidate)
        if metric not in rivals.candidate:
            broken.append(f"{task}: found the metrics {', '.join(sorted(rivals.candidate))}, expected {metric}")
            continue
        shown[task], faults = _task(limit, metric, rivals, seed, policy.confidence)
        broken += [f"{task}: {fault}" for fault in faults]
    figures = {"tasks": shown, **({"broken": broken} if broken else {})}
    return CheckOutcome(not broken, figures, "" if found else "the suite has no generation tasks")


def _task(
    limit: TaskLimit, metric: str, rivals: TaskRivals, seed: int, confidence: float
) -> tuple[dict[str, Any], list[str]]:
    """What is shown of one task, and what is wrong with it."""
    own = rivals.candidate[metric]
    mean, faults = float(own.mean()), list[str]()
    shown: dict[str, Any] = {"metric": metric, "mean": mean, "examples": len(own)}
    if limit.at_least is not None and mean < limit.at_least:
        faults.append(f"{metric} is {mean:.4g}, expected at least {limit.at_least:g}")
    if limit.margin is None or rivals.champion is None:
        return shown, faults
    theirs = rivals.champion.get(metric)
    if theirs is None or len(theirs) != len(own):
        return shown, [*faults, f"the champion has no {metric} of the same examples"]
    worse = compared(own, theirs, seed, confidence)
    high = worse.high if np.isfinite(worse.high) else None
    shown |= {"champion": float(theirs.mean()), "worse": worse.mean, "interval_high": high, "margin": limit.margin}
    if not worse.high < limit.margin:
        below = f"up to {high:.4g} lower" if high is not None else f"{len(own)} examples are too few to compare it"
        faults.append(f"{metric} is {mean:.4g}, the champion's {float(theirs.mean()):.4g}: {below} at {confidence:.1%} "
                      f"confidence, expected below {limit.margin:g}")  # fmt: skip
    return shown, faults


def compared(own: Values, theirs: Values, seed: int, confidence: float) -> PairedDifference:
    """By how much the champion's mean is above the candidate's."""
    if proportions.are_shares(own) and proportions.are_shares(theirs):
        return proportions.compare(own, theirs, confidence)
    return paired.compare(theirs, own, np.ones(len(own)), seed, confidence)

"""Checks: what the gate's policy says of a candidate's figures. Pure: plain values in, outcomes out.

Each check has a name, an outcome and what was compared; a check that was not needed is passed, and says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slipway.assets.gates import paired
from slipway.assets.gates.paired import PairedDifference
from slipway.recipes.gate import GateSection
from slipway.resources.mlflow.promotion import NOT_EXAMINED
from slipway.trainer.base import digest

BEATS_UNIGRAMS, BEATS_CHAMPION = "beats_unigram_entropy", "beats_champion"
WITHIN_LIMITS, NO_WORSE_SLICE, HAS_LINEAGE = "within_limits", "no_slice_is_worse", "has_lineage"
ANSWERS_TASKS, SUITE_IS_UNSEEN = "answers_tasks", "suite_is_unseen"
CHECKS = {
    BEATS_UNIGRAMS: "The loss on the validation split is below the entropy of its tokens or classes.",
    BEATS_CHAMPION: "On the suite's examples it is better than the champion in the mean, and not worse than it by the "
    "margin at the end of the interval of their paired difference.",
    NO_WORSE_SLICE: "In no slice (source, language, length) is it worse than the champion by more than the policy's "
    "limit.",
    WITHIN_LIMITS: "Its figures are within the limits of the policy.",
    SUITE_IS_UNSEEN: "Its training documents, and those of the weights that it began with, give away no more documents "
    "of the suite, and no more questions of its generation tasks, than the suite's recipe allows.",
    ANSWERS_TASKS: "Its answers to the suite's generation tasks are above the policy's floors, and not worse than the "
    "champion's by the margin at the end of the interval of their paired difference.",
    HAS_LINEAGE: "Snapshot, tokenizer, every byte of the checkpoint and the code that made it are there.",
}
"""The checks of a candidate, and what each says."""


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of one check."""

    passed: bool
    figures: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Rivals:
    """Two models on the same examples, in one unit; all arrays: [documents]."""

    candidate: paired.Values
    champion: paired.Values
    sizes: paired.Values
    slices: Mapping[str, Any]
    """Which documents each slice has, by its name: arrays of bool."""


def seed_of(policy: GateSection, *hashes: str) -> int:
    """The seed of the resamples: a function of what is compared, so that nobody draws until they like the result."""
    return int(digest.sha256("\x00".join((str(policy.seed), *hashes)).encode())[:16], 16)


def difference(rivals: Rivals, policy: GateSection, seed: int) -> PairedDifference:
    """How much worse the candidate is than the champion. Raises ValueError as `paired.compare` does."""
    return paired.compare(rivals.candidate, rivals.champion, rivals.sizes, seed, policy.confidence)


def against_champion(found: PairedDifference, policy: GateSection) -> CheckOutcome:
    """Whether the candidate is better in the mean, and not worse by the margin."""
    passed = found.mean < -policy.minimum_gain and found.high < policy.margin
    figures = {
        "difference": found.mean,
        "interval_low": found.low if np.isfinite(found.low) else None,
        "interval_high": found.high if np.isfinite(found.high) else None,
        "confidence": found.confidence,
        "examples": found.examples,
        "margin": policy.margin,
    }
    few = f"{found.examples} examples are too few for an interval, expected {paired.FEWEST}"
    return CheckOutcome(passed, figures, "" if np.isfinite(found.high) else few)


def slices(rivals: Rivals, policy: GateSection) -> CheckOutcome:
    """Whether no slice with enough examples is worse in the mean by more than the policy's margin."""
    if policy.slice_margin is None:
        return CheckOutcome(True, note="the policy has no limit for slices")
    worse = (rivals.candidate - rivals.champion).astype(float)
    counted = {name: own for name, own in rivals.slices.items() if own.sum() >= policy.slice_examples}
    found = {name: float(worse[own].sum() / rivals.sizes[own].sum()) for name, own in counted.items()}
    over = {name: value for name, value in found.items() if value > policy.slice_margin}
    note = "" if counted else f"no slice has {policy.slice_examples} examples"
    return CheckOutcome(not over, {"difference_by_slice": found, "slice_margin": policy.slice_margin}, note)


def limits(policy: GateSection, figures: Mapping[str, float | None]) -> CheckOutcome:
    """Whether the figures are within the policy's limits; one that is not known is not."""
    bounds: list[tuple[str, str, float]] = [(name, "at most", bound) for name, bound in policy.at_most.items()]
    bounds += [(name, "at least", bound) for name, bound in policy.at_least.items()]
    broken = [
        f"{name}: {'not known' if (value := figures.get(name)) is None else f'{value:.4g}'}, expected {how} {bound:g}"
        for name, how, bound in bounds
        if (value := figures.get(name)) is None or (value > bound if how == "at most" else value < bound)
    ]
    return CheckOutcome(not broken, {"broken": broken} if broken else {}, "" if bounds else "the policy has no limits")


def not_needed(why: str) -> CheckOutcome:
    """A check that has nothing to compare."""
    return CheckOutcome(True, note=why)


def not_reached(why: str) -> CheckOutcome:
    """A check that was not made, as the candidate has failed without it."""
    return CheckOutcome(False, note=f"{NOT_EXAMINED}{why}")

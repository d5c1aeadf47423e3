"""Policy checks: they apply a recipe's policy to a candidate's metrics, answers and lineage. Pure functions.

Each check has a name, an outcome and the compared values; a check that is not needed passes with a note.

A generation task's metric is a number for each example, higher is better: 1 for a right answer, or a score from 0 to 1.
Answers that are right or wrong are compared as proportions, scores in pairs (`slipway.assets.promotion.comparison`).

`rejection_reasons` explains from the recorded judgement why a candidate did not become the champion, and what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slipway.assets.promotion import comparison
from slipway.assets.promotion.comparison import PairedDifference, Values
from slipway.recipes.gate import GateSection, TaskLimit
from slipway.resources import code
from slipway.resources.promotions.model_record import ModelRecord, missing
from slipway.resources.promotions.promotion import NOT_EXAMINED, Judgement, Promotion
from slipway.trainer.base import digest

BEATS_UNIGRAMS = "beats_unigram_entropy"
BEATS_CHAMPION = "beats_champion"
WITHIN_LIMITS = "within_limits"
NO_WORSE_SLICE = "no_slice_is_worse"
HAS_LINEAGE = "has_lineage"
ANSWERS_TASKS = "answers_tasks"
SUITE_IS_UNSEEN = "suite_is_unseen"
CHECKS = {
    BEATS_UNIGRAMS: "The candidate is better than guessing by frequency: its validation loss is below the entropy of "
    "the tokens or classes.",
    BEATS_CHAMPION: "The candidate is better than the champion on average on the suite's examples, and the confidence "
    "interval of their paired difference excludes that it is worse by the margin.",
    NO_WORSE_SLICE: "The candidate is in no slice (source, language, length) worse than the champion by more than the "
    "policy's limit.",
    WITHIN_LIMITS: "The candidate's metrics are within the limits of the policy.",
    SUITE_IS_UNSEEN: "The candidate's training documents, and those of its initial weights, contain no more of the "
    "suite's documents and questions than the suite's recipe allows.",
    ANSWERS_TASKS: "The candidate's answers to the suite's generation tasks reach the policy's minimum, and the "
    "confidence interval excludes that they are worse than the champion's by the margin.",
    HAS_LINEAGE: "The snapshot, the tokenizer, every byte of the checkpoint and the code that made it are available.",
}
"""The checks of a candidate, with the descriptions that the UI shows."""
COMPLETE = "complete"
REMEDIES = {
    "code.revision": ": run from a checkout of git, or set revision in the platform's settings",
    "environment.image_digest": ": name compute.cluster.image by digest, name@sha256:…",
}
"""The advice for fields whose remedy is not obvious."""
WAS_CHAMPION = "was_champion"
"""Rollback check: the version was a champion before."""
IS_WHOLE = "is_whole"
"""Rollback check: the version's bytes are undamaged."""
LEAK_ADVICE = (
    "raise the suite's edition, or ask other questions, or name what has leaked in cleaning.decontamination.against of "
    "the dataset and train again"
)


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of one check."""

    passed: bool
    figures: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Rivals:
    """Two models on the same examples, in the same unit; all arrays: [documents]."""

    candidate: comparison.Values
    champion: comparison.Values
    sizes: comparison.Values
    slices: Mapping[str, Any]
    """A mask of the documents in each slice, by name: arrays of bool."""


def seed_of(policy: GateSection, *hashes: str) -> int:
    """The seed of the resamples. It depends only on the compared inputs, so nobody can draw again for a better
    result."""
    return int(digest.sha256("\x00".join((str(policy.seed), *hashes)).encode())[:16], 16)


def difference(rivals: Rivals, policy: GateSection, seed: int) -> PairedDifference:
    """The candidate's loss less the champion's. Raises ValueError as `comparison.compare` does."""
    return comparison.compare(rivals.candidate, rivals.champion, rivals.sizes, seed, policy.confidence)


def against_champion(difference: PairedDifference, policy: GateSection) -> CheckOutcome:
    """Check that the candidate is better in the mean, and not worse by the margin."""
    passed = difference.mean < -policy.minimum_gain and difference.high < policy.margin
    figures = {
        "difference": difference.mean,
        "interval_low": difference.low if np.isfinite(difference.low) else None,
        "interval_high": difference.high if np.isfinite(difference.high) else None,
        "confidence": difference.confidence,
        "examples": difference.examples,
        "margin": policy.margin,
    }
    few = f"{difference.examples} examples are too few for an interval, expected {comparison.FEWEST}"
    return CheckOutcome(passed, figures, "" if np.isfinite(difference.high) else few)


def slices(rivals: Rivals, policy: GateSection) -> CheckOutcome:
    """Check that no slice with enough examples is worse in the mean by more than the policy's margin."""
    if policy.slice_margin is None:
        return CheckOutcome(True, note="the policy has no limit for slices")
    worse = (rivals.candidate - rivals.champion).astype(float)
    counted = {name: own for name, own in rivals.slices.items() if own.sum() >= policy.slice_examples}
    differences = {name: float(worse[own].sum() / rivals.sizes[own].sum()) for name, own in counted.items()}
    over = {name: value for name, value in differences.items() if value > policy.slice_margin}
    note = "" if counted else f"no slice has {policy.slice_examples} examples"
    return CheckOutcome(not over, {"difference_by_slice": differences, "slice_margin": policy.slice_margin}, note)


def limits(policy: GateSection, figures: Mapping[str, float | None]) -> CheckOutcome:
    """Check that the metrics are within the policy's limits. An unknown metric breaks its limit."""
    if not policy.at_most and not policy.at_least:
        return CheckOutcome(True, note="the policy has no limits")
    broken = []
    for name, bound in policy.at_most.items():
        value = figures.get(name)
        if value is None or value > bound:
            broken.append(f"{name}: {_known(value)}, expected at most {bound:g}")
    for share, bound in policy.at_least.items():
        value = figures.get(share)
        if value is None or value < bound:
            broken.append(f"{share}: {_known(value)}, expected at least {bound:g}")
    return CheckOutcome(not broken, {"broken": broken} if broken else {})


def _known(value: float | None) -> str:
    return "not known" if value is None else f"{value:.4g}"


def not_needed(why: str) -> CheckOutcome:
    """A passed check with nothing to compare."""
    return CheckOutcome(True, note=why)


def not_reached(why: str) -> CheckOutcome:
    """A check that did not run because the candidate has already failed."""
    return CheckOutcome(False, note=f"{NOT_EXAMINED}{why}")


@dataclass(frozen=True)
class TaskRivals:
    """The answers of two models to one task."""

    candidate: Mapping[str, Values]
    """By metric: [examples]."""
    champion: Mapping[str, Values] | None = None
    """The champion's values on the same examples; None without a comparison."""


def check_tasks(policy: GateSection, rivals_by_task: Mapping[str, TaskRivals], seed: int) -> CheckOutcome:
    """Check that each task is within its limits. Tasks without a limit are only shown."""
    broken = []
    task_figures = dict[str, dict[str, Any]]()
    for task, rivals in sorted(rivals_by_task.items()):
        limit = policy.tasks.get(task, TaskLimit())
        metric = limit.metric or min(rivals.candidate)
        if metric not in rivals.candidate:
            broken.append(f"{task}: found the metrics {', '.join(sorted(rivals.candidate))}, expected {metric}")
            continue
        task_figures[task], faults = _check_task(limit, metric, rivals, seed, policy.confidence)
        broken += [f"{task}: {fault}" for fault in faults]
    figures = {"tasks": task_figures, **({"broken": broken} if broken else {})}
    return CheckOutcome(not broken, figures, "" if rivals_by_task else "the suite has no generation tasks")


def compared(own: Values, champion: Values, seed: int, confidence: float) -> PairedDifference:
    """The champion's mean less the candidate's."""
    if comparison.are_shares(own) and comparison.are_shares(champion):
        return comparison.compare_proportions(own, champion, confidence)
    return comparison.compare(champion, own, np.ones(len(own)), seed, confidence)


def lineage_faults(record: ModelRecord, durable: Path, required: str, on_a_cluster: bool) -> list[str]:
    """One sentence for each missing part of the lineage; `required` is the policy's `lineage`."""
    faults = []
    revision = str(record.code.get("revision", ""))
    if code.is_changed(revision) and not code.difference_path(durable, revision).exists():
        faults.append(f"the code was changed ({revision}), and its diff is not recorded")
    if required == COMPLETE:
        faults += [f"{field} is not known{REMEDIES.get(field, '')}" for field in missing(record)]
        if on_a_cluster and not record.environment.get("image"):
            faults.append("environment.image_digest is not known")
    return faults


def check_lineage(
    record: ModelRecord | None, durable: Path, required: str, on_a_cluster: bool, damage: str
) -> CheckOutcome:
    """The lineage check; `damage` is the fault of the checkpoint's bytes, `record` is None if there is none."""
    faults = ["its record (slipway models show): materialise its candidate"]
    if record is not None:
        faults = lineage_faults(record, durable, required, on_a_cluster)
    return CheckOutcome(not faults and not damage, {"missing": faults, **({"damaged": damage} if damage else {})})


def rejection_reasons(judgement: Judgement, champion: Promotion | None) -> str:
    """The findings of the failed checks of a judged candidate; empty if it passed, or if it waits for a person.

    `champion` is the champion of the comparison.
    """
    if judgement.undecided:
        return ""
    figures: Mapping[str, Mapping[str, Any]] = judgement.figures.get("checks", {})
    return "; ".join(_reason(name, figures.get(name, {}), judgement, _named(champion)) for name in judgement.failed)


def version_outcome(judgement: Judgement | None, compared: Promotion | None, reason: str) -> str:
    """The state of a version that is not the champion, in words that follow its number.

    `compared` is the champion of the comparison; `reason` says why a passed version waits, and is empty if it does not.
    """
    if judgement is None:
        return "is not judged yet: this happens after its training has ended and all its checkpoints are evaluated"
    if judgement.undecided:
        return f"waits for a person: {judgement.undecided}"
    if not judgement.passed:
        return f"did not pass: {rejection_reasons(judgement, compared)}"
    if not reason:
        return "passed its checks"
    return f"passed, and waits: {reason}"


def _check_task(
    limit: TaskLimit, metric: str, rivals: TaskRivals, seed: int, confidence: float
) -> tuple[dict[str, Any], list[str]]:
    """The metrics of one task, and its faults."""
    own = rivals.candidate[metric]
    mean = float(own.mean())
    faults = list[str]()
    task_figures: dict[str, Any] = {"metric": metric, "mean": mean, "examples": len(own)}
    if limit.at_least is not None and mean < limit.at_least:
        faults.append(f"{metric} is {mean:.4g}, expected at least {limit.at_least:g}")
    if limit.margin is None or rivals.champion is None:
        return task_figures, faults
    champion = rivals.champion.get(metric)
    if champion is None or len(champion) != len(own):
        return task_figures, [*faults, f"the champion has no {metric} of the same examples"]
    worse = compared(own, champion, seed, confidence)
    high = worse.high if np.isfinite(worse.high) else None
    task_figures |= {
        "champion": float(champion.mean()),
        "worse": worse.mean,
        "interval_high": high,
        "margin": limit.margin,
    }
    if not worse.high < limit.margin:
        below = f"up to {high:.4g} lower" if high is not None else f"{len(own)} examples are too few to compare it"
        faults.append(f"{metric} is {mean:.4g}, the champion's {float(champion.mean()):.4g}: {below} at "
                      f"{confidence:.1%} confidence, expected below {limit.margin:g}")  # fmt: skip
    return task_figures, faults


def _named(champion: Promotion | None) -> str:
    if champion is None:
        return "the champion"
    recipe = champion.tags.get("slipway.recipe", "")
    return f"the champion, version {champion.version}" + (f" of recipe {recipe}" if recipe else "")


def _reason(name: str, own: Mapping[str, Any], judgement: Judgement, champion: str) -> str:
    """The finding of one failed check."""
    match name:
        case _ if name == BEATS_UNIGRAMS:
            loss = judgement.figures["loss"]
            entropy = judgement.figures["unigram_entropy"]
            return (
                f"its loss {loss:.4g} is not below {entropy:.4g}, which a guess by frequency alone reaches: train it "
                "for more steps, or with another learning rate"
            )
        case _ if name == BEATS_CHAMPION:
            return _against(own, str(judgement.figures["unit"]), champion)
        case _ if name == NO_WORSE_SLICE:
            worst = max(own["difference_by_slice"], key=own["difference_by_slice"].__getitem__)
            by = own["difference_by_slice"][worst]
            return f"in slice {worst} it is worse than {champion} by {by:.4g}, expected at most {own['slice_margin']:g}"
        case _ if name == WITHIN_LIMITS:
            return f"it is not within the limits of gate: {', '.join(own['broken'])}"
        case _ if name == SUITE_IS_UNSEEN:
            return f"{own['broken']}: {LEAK_ADVICE}"
        case _ if name == ANSWERS_TASKS:
            return f"its answers are not within gate.tasks: {'; '.join(own['broken'])}"
        case _ if name == WAS_CHAMPION:
            former = ", ".join(own.get("champions", ())) or "those of the history"
            return f"it was never the champion, expected one of {former}"
        case _ if name == IS_WHOLE:
            return f"its bytes differ from the committed ones: {own.get('damaged', 'verify it')}"
        case _:
            missing_fields = [*own.get("missing", ()), *([own["damaged"]] if own.get("damaged") else [])]
            return f"its lineage is incomplete: {', '.join(missing_fields)}"


def _against(own: Mapping[str, Any], unit: str, champion: str) -> str:
    difference = own["difference"]
    if own["interval_high"] is None:
        return (
            f"{own['examples']} examples are too few to compare it with {champion}, expected {comparison.FEWEST} "
            "or more: add documents to the dataset, raise its split.validation, "
            "or name a suite in the training's recipe"
        )
    how = "better" if difference < 0 else "worse"
    return (
        f"it is not better than {champion}: in the mean {abs(difference):.4g} {unit} {how}, and up to "
        f"{own['interval_high']:.4g} worse at {own['confidence']:.0%} confidence, expected below {own['margin']:g}"
    )

"""Policy checks: what a recipe's policy says of a candidate's figures, answers and lineage. Pure: outcomes of values.

Each check has a name, an outcome and what was compared; a check that was not needed is passed, and says so.

A generation task's metric is a number of each example, more is better: 1 for a right answer, or a score from 0 to 1.
Answers that are right or wrong are compared as proportions, scores in pairs (`slipway.assets.promotion.comparison`).

Why a candidate did not become the champion, and what to do, `rejection_reasons` says for the page of the champion, from
the judgement on record.
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
COMPLETE = "complete"
REMEDIES = {
    "code.revision": ": run from a checkout of git, or set revision in the platform's settings",
    "environment.image_digest": ": name compute.cluster.image by digest, name@sha256:…",
}
"""What to do about a field, where that is not plain."""
WAS_CHAMPION, IS_WHOLE = "was_champion", "is_whole"
"""The checks of a version that comes back."""
LEAK_ADVICE = (
    "raise the suite's edition, or ask other questions, or name what has leaked in cleaning.decontamination.against of "
    "the dataset and train anew"
)


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of one check."""

    passed: bool
    figures: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Rivals:
    """Two models on the same examples, in one unit; all arrays: [documents]."""

    candidate: comparison.Values
    champion: comparison.Values
    sizes: comparison.Values
    slices: Mapping[str, Any]
    """Which documents each slice has, by its name: arrays of bool."""


def seed_of(policy: GateSection, *hashes: str) -> int:
    """The seed of the resamples: a function of what is compared, so that nobody draws until they like the result."""
    return int(digest.sha256("\x00".join((str(policy.seed), *hashes)).encode())[:16], 16)


def difference(rivals: Rivals, policy: GateSection, seed: int) -> PairedDifference:
    """How much worse the candidate is than the champion. Raises ValueError as `comparison.compare` does."""
    return comparison.compare(rivals.candidate, rivals.champion, rivals.sizes, seed, policy.confidence)


def against_champion(difference: PairedDifference, policy: GateSection) -> CheckOutcome:
    """Whether the candidate is better in the mean, and not worse by the margin."""
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
    """Whether no slice with enough examples is worse in the mean by more than the policy's margin."""
    if policy.slice_margin is None:
        return CheckOutcome(True, note="the policy has no limit for slices")
    worse = (rivals.candidate - rivals.champion).astype(float)
    counted = {name: own for name, own in rivals.slices.items() if own.sum() >= policy.slice_examples}
    differences = {name: float(worse[own].sum() / rivals.sizes[own].sum()) for name, own in counted.items()}
    over = {name: value for name, value in differences.items() if value > policy.slice_margin}
    note = "" if counted else f"no slice has {policy.slice_examples} examples"
    return CheckOutcome(not over, {"difference_by_slice": differences, "slice_margin": policy.slice_margin}, note)


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


@dataclass(frozen=True)
class TaskRivals:
    """The answers of two models to one task."""

    candidate: Mapping[str, Values]
    """By metric: [examples]."""
    champion: Mapping[str, Values] | None = None
    """On the same examples; None where nobody is compared with."""


def check_tasks(policy: GateSection, rivals_by_task: Mapping[str, TaskRivals], seed: int) -> CheckOutcome:
    """Whether each task is within its limits; tasks without one are shown. `rivals_by_task` is by task."""
    broken, task_figures = [], dict[str, dict[str, Any]]()
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
    """By how much the champion's mean is above the candidate's."""
    if comparison.are_shares(own) and comparison.are_shares(champion):
        return comparison.compare_proportions(own, champion, confidence)
    return comparison.compare(champion, own, np.ones(len(own)), seed, confidence)


def lineage_faults(record: ModelRecord, durable: Path, required: str, on_a_cluster: bool) -> list[str]:
    """What is missing, a sentence each; `required` is the policy's `lineage`."""
    faults = []
    revision = str(record.code.get("revision", ""))
    if code.is_changed(revision) and not code.difference_path(durable, revision).exists():
        faults.append(f"the code was changed ({revision}), and its difference is not on record")
    if required == COMPLETE:
        faults += [f"{field} is not known{REMEDIES.get(field, '')}" for field in missing(record)]
        if on_a_cluster and not record.environment.get("image"):
            faults.append("environment.image_digest is not known")
    return faults


def check_lineage(
    record: ModelRecord | None, durable: Path, required: str, on_a_cluster: bool, damage: str
) -> CheckOutcome:
    """The check; `damage` is what is wrong with the checkpoint's bytes, `record` None where nobody has kept one."""
    faults = ["its record (slipway models show): materialise its candidate"]
    if record is not None:
        faults = lineage_faults(record, durable, required, on_a_cluster)
    return CheckOutcome(not faults and not damage, {"missing": faults, **({"damaged": damage} if damage else {})})


def rejection_reasons(judgement: Judgement, champion: Promotion | None) -> str:
    """Why a judged candidate is not the champion: what each check found that failed; empty for one that passed, or that
    waits for a person.

    `champion` is the one that it was compared with.
    """
    if judgement.undecided:
        return ""
    figures: Mapping[str, Mapping[str, Any]] = judgement.figures.get("checks", {})
    return "; ".join(_reason(name, figures.get(name, {}), judgement, _named(champion)) for name in judgement.failed)


def version_outcome(judgement: Judgement | None, compared: Promotion | None, reason: str) -> str:
    """What became of a version that is not the champion, in words that follow its number.

    `compared` is the champion that it was compared with, `reason` why it is held back; empty where it is not.
    """
    if judgement is None:
        return "is not judged yet: it is once its training has ended and all its checkpoints are evaluated"
    if judgement.undecided:
        return f"waits for a person: {judgement.undecided}"
    if not judgement.passed:
        return f"did not pass: {rejection_reasons(judgement, compared)}"
    return f"passed, and waits: {reason}" if reason else "passed its checks"


def _check_task(
    limit: TaskLimit, metric: str, rivals: TaskRivals, seed: int, confidence: float
) -> tuple[dict[str, Any], list[str]]:
    """What is shown of one task, and what is wrong with it."""
    own = rivals.candidate[metric]
    mean, faults = float(own.mean()), list[str]()
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
    """What one failed check found."""
    match name:
        case _ if name == BEATS_UNIGRAMS:
            loss, entropy = judgement.figures["loss"], judgement.figures["unigram_entropy"]
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
            return f"its bytes are not what was committed: {own.get('damaged', 'verify it')}"
        case _:
            missing_fields = [*own.get("missing", ()), *([own["damaged"]] if own.get("damaged") else [])]
            return f"its lineage is not whole: {', '.join(missing_fields)}"


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

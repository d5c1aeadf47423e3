"""Contamination: how much of the suite candidate and champion have seen in their trainings.

A model that has memorised the documents of a suite, or the questions of its generation tasks, is better on these and
not elsewhere. Every snapshot that led to a model's weights counts: that of its training, and those of the trainings
whose weights it started from. A snapshot is compared with the same texts only once, either by the suite's check
`decontaminated` or by the gate.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipway.assets import holdout_filter
from slipway.assets.promotion import policy_checks
from slipway.assets.promotion.policy_checks import CheckOutcome
from slipway.assets.suites import leaks, suite
from slipway.assets.suites.leaks import ComparedTexts
from slipway.assets.suites.suite import Example, Suite
from slipway.recipes.suite import SuiteRecipe
from slipway.resources.tiers import Tiers

REFUSED = "refused"
"""The policy under which a candidate that has seen too much does not pass."""


@dataclass(frozen=True)
class Contamination:
    """The texts that a model has seen in its training."""

    leaked: frozenset[str] = frozenset()
    """BLAKE3 of the texts that share a passage with a training document."""
    compared: tuple[str, ...] = ()
    """The snapshots that were compared with the texts."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """The reason why a snapshot that led to the weights was not compared, by snapshot."""


@dataclass(frozen=True)
class ContaminationLimit:
    """The limits of the policy and the suite's recipe."""

    what: str
    """A name for the texts: documents of a suite, or questions of a task."""
    texts: int
    """The number of texts."""
    most: float
    """The largest share of the texts that may have leaked."""
    policy: str = REFUSED
    """The gate's field `leaks`."""
    remedy: str = "raise the suite's edition"
    """The advice for a champion that has seen too many of them."""


@dataclass(frozen=True)
class TrainedWeights:
    """The checkpoints of candidate and champion, whose lineage names their training data."""

    tiers: Tiers
    candidate: Path
    own: Collection[str]
    """The snapshots of the candidate's training."""
    champion: Path | None = None

    def of_documents(
        self, documents_suite: Suite, examples: Sequence[Example], recipe: SuiteRecipe, policy: str
    ) -> CheckOutcome:
        """Check whether the models have seen the suite; `policy` is the gate's field `leaks`.

        Raises ValueError for a candidate whose lineage cannot be read.
        """
        own, champion = self._exposures(leaks.documents(documents_suite, examples, recipe.held_out))
        count = documents_suite.tasks[suite.DOCUMENTS]
        allowed = ContaminationLimit(f"documents of suite {recipe.name}", count, recipe.contaminated, policy)
        outcome = check(own, self.own, champion, allowed)
        return replace(outcome, figures={"suite_documents": count, **outcome.figures})

    def of_questions(
        self, questions_by_task: Mapping[str, Mapping[str, str]], recipe: SuiteRecipe, policy: str
    ) -> dict[str, CheckOutcome]:
        """Check whether the models have seen the questions, given by task and BLAKE3; one outcome per task."""
        texts = {blake3: text for task in questions_by_task.values() for blake3, text in task.items()}
        own, champion = self._exposures(leaks.questions(texts, recipe.held_out))
        outcomes = dict[str, CheckOutcome]()
        for task, questions in questions_by_task.items():
            allowed = ContaminationLimit(
                f"questions of task {task}", len(questions), recipe.contaminated, policy, "ask other questions"
            )
            rival = _of_these(champion, questions) if champion else None
            outcome = check(_of_these(own, questions), self.own, rival, allowed)
            outcomes[task] = replace(outcome, figures={"questions": len(questions), **outcome.figures})
        return outcomes

    def _exposures(self, texts: ComparedTexts) -> tuple[Contamination, Contamination | None]:
        champion = None
        if self.champion:
            champion = of_champion(self.champion, self.tiers, texts)
        return of_checkpoint(self.candidate, self.tiers, texts), champion


def of_checkpoint(folder: Path, tiers: Tiers, texts: ComparedTexts) -> Contamination:
    """The texts that the checkpoint in a folder has seen. A snapshot that was not compared yet is read once.

    Raises ValueError for a checkpoint whose lineage cannot be read.
    """
    leaked = set[str]()
    compared = list[str]()
    unreadable = dict[str, str]()
    for snapshot in sorted(holdout_filter.snapshots_seen(folder, tiers)):
        try:
            check = leaks.of(tiers.durable_path, texts, snapshot)
        except (ValueError, FileNotFoundError) as error:
            unreadable[snapshot] = str(error)
        else:
            leaked.update(check.leaked)
            compared.append(snapshot)
    return Contamination(frozenset(leaked), tuple(compared), unreadable)


def of_champion(folder: Path, tiers: Tiers, texts: ComparedTexts) -> Contamination:
    """The texts that a champion has seen; its lineage may be unreadable."""
    try:
        return of_checkpoint(folder, tiers, texts)
    except ValueError as error:
        return Contamination(unreadable={"lineage": str(error)})


def check(
    candidate: Contamination, own: Collection[str], champion: Contamination | None, allowed: ContaminationLimit
) -> CheckOutcome:
    """Check that the candidate has seen at most the allowed share of the texts; `own` are its training's snapshots.

    Contamination of the champion is only reported: it makes the champion look better than it is, so no candidate passes
    because of it. Pure.
    """
    broken = _broken(candidate, own, allowed)
    notes_of_check = list[str]()
    figures: dict[str, Any] = {
        "leaked": len(candidate.leaked),
        "leaked_at_most": allowed.most,
        "compared_with": list(candidate.compared),
    }
    if candidate.unreadable:
        figures["not_compared"] = dict(candidate.unreadable)
    if champion is not None:
        figures["champion_leaked"] = len(champion.leaked)
        notes_of_check += _of_champion(champion, allowed)
    if broken and allowed.policy == REFUSED:
        figures["broken"] = broken
    elif broken:
        notes_of_check.insert(0, f"{broken}; gate.leaks lets it pass")
    return CheckOutcome("broken" not in figures, figures, "; ".join(notes_of_check))


def together(documents: CheckOutcome, questions: Mapping[str, CheckOutcome]) -> CheckOutcome:
    """The check of the documents combined with the checks of each task's questions. Pure."""
    parts = (documents, *questions.values())
    broken = [str(part.figures["broken"]) for part in parts if "broken" in part.figures]
    figures: dict[str, Any] = {
        **documents.figures,
        "questions": {task: part.figures for task, part in questions.items()},
    }
    if broken:
        figures["broken"] = "; ".join(broken)
    part_notes = dict.fromkeys(part.note for part in parts if part.note)
    return CheckOutcome(all(part.passed for part in parts), figures, "; ".join(part_notes))


def without_suite() -> CheckOutcome:
    """The check of a candidate without a suite."""
    return policy_checks.not_needed("it is measured on the validation split, which its dataset's recipe keeps apart")


def _of_these(contamination: Contamination, questions: Collection[str]) -> Contamination:
    return replace(contamination, leaked=contamination.leaked & frozenset(questions))


def _broken(contamination: Contamination, own: Collection[str], allowed: ContaminationLimit) -> str:
    """The fault of the candidate; empty if there is none."""
    unknown = [why for snapshot, why in contamination.unreadable.items() if snapshot in own]
    if unknown:
        return f"the {allowed.what} cannot be compared with its training documents: {'; '.join(unknown)}"
    if len(contamination.leaked) <= allowed.most * allowed.texts:
        return ""
    return (
        f"its training documents give away {len(contamination.leaked)} of the {allowed.texts} {allowed.what}, "
        f"expected at most a share of {allowed.most:g}"
    )


def _of_champion(champion: Contamination, allowed: ContaminationLimit) -> list[str]:
    """Notes about the champion."""
    if champion.unreadable:
        return [f"the champion's training data is only partly known: {'; '.join(champion.unreadable.values())}"]
    if len(champion.leaked) <= allowed.most * allowed.texts:
        return []
    return [
        f"the training documents of the champion give away {len(champion.leaked)} of the {allowed.texts} "
        f"{allowed.what}, which makes it look better than it is: {allowed.remedy}"
    ]

"""Verdict: why a candidate did not become the champion, and what to do, in words for the page of the champion.

Pure: from the judgement on record. What each check compared is in `slipway.assets.gates.checks`.
"""

from collections.abc import Mapping
from typing import Any

from slipway.assets.gates import checks, paired
from slipway.resources.mlflow.promotion import Judgement, Promotion

WAS_CHAMPION, IS_WHOLE = "was_champion", "is_whole"
"""The checks of a version that comes back."""
LEAK_ADVICE = (
    "raise the suite's edition, or ask other questions, or name what has leaked in cleaning.decontamination.against of "
    "the dataset and train anew"
)


def reasons(judgement: Judgement, champion: Promotion | None) -> str:
    """Why a judged candidate is not the champion: what each check found that failed; empty for one that passed, or that
    waits for a person.

    `champion` is the one that it was compared with.
    """
    if judgement.undecided:
        return ""
    figures: Mapping[str, Mapping[str, Any]] = judgement.figures.get("checks", {})
    return "; ".join(_reason(name, figures.get(name, {}), judgement, _named(champion)) for name in judgement.failed)


def standing(judgement: Judgement | None, compared: Promotion | None, waits: str) -> str:
    """What became of a version that is not the champion, in words that follow its number.

    `compared` is the champion that it was compared with, `waits` why it is held back; empty where it is not.
    """
    if judgement is None:
        return "is not judged yet: it is once its training has ended and all its checkpoints are evaluated"
    if judgement.undecided:
        return f"waits for a person: {judgement.undecided}"
    if not judgement.passed:
        return f"did not pass: {reasons(judgement, compared)}"
    return f"passed, and waits: {waits}" if waits else "passed its checks"


def _named(champion: Promotion | None) -> str:
    if champion is None:
        return "the champion"
    recipe = champion.tags.get("slipway.recipe", "")
    return f"the champion, version {champion.version}" + (f" of recipe {recipe}" if recipe else "")


def _reason(name: str, own: Mapping[str, Any], judgement: Judgement, champion: str) -> str:
    """What one failed check found."""
    match name:
        case checks.BEATS_UNIGRAMS:
            loss, entropy = judgement.figures["loss"], judgement.figures["unigram_entropy"]
            return (
                f"its loss {loss:.4g} is not below {entropy:.4g}, which a guess by frequency alone reaches: train it "
                "for more steps, or with another learning rate"
            )
        case checks.BEATS_CHAMPION:
            return _against(own, str(judgement.figures["unit"]), champion)
        case checks.NO_WORSE_SLICE:
            worst = max(own["difference_by_slice"], key=own["difference_by_slice"].__getitem__)
            by = own["difference_by_slice"][worst]
            return f"in slice {worst} it is worse than {champion} by {by:.4g}, expected at most {own['slice_margin']:g}"
        case checks.WITHIN_LIMITS:
            return f"it is not within the limits of gate: {', '.join(own['broken'])}"
        case checks.SUITE_IS_UNSEEN:
            return f"{own['broken']}: {LEAK_ADVICE}"
        case checks.ANSWERS_TASKS:
            return f"its answers are not within gate.tasks: {'; '.join(own['broken'])}"
        case _ if name == WAS_CHAMPION:
            former = ", ".join(own.get("champions", ())) or "those of the history"
            return f"it was never the champion, expected one of {former}"
        case _ if name == IS_WHOLE:
            return f"its bytes are not what was committed: {own.get('damaged', 'verify it')}"
        case _:
            lacking = [*own.get("missing", ()), *([own["damaged"]] if own.get("damaged") else [])]
            return f"its lineage is not whole: {', '.join(lacking)}"


def _against(own: Mapping[str, Any], unit: str, champion: str) -> str:
    found = own["difference"]
    if own["interval_high"] is None:
        return (
            f"{own['examples']} examples are too few to compare it with {champion}, expected {paired.FEWEST} or more: "
            "add documents to the dataset, raise its split.validation, or name a suite in the training's recipe"
        )
    how = "better" if found < 0 else "worse"
    return (
        f"it is not better than {champion}: in the mean {abs(found):.4g} {unit} {how}, and up to "
        f"{own['interval_high']:.4g} worse at {own['confidence']:.0%} confidence, expected below {own['margin']:g}"
    )

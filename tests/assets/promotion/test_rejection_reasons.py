"""Why a candidate is not the champion, in words."""

from typing import Any

import pytest

from slipway.assets.promotion import policy_checks as checks
from slipway.assets.promotion.policy_checks import (
    BEATS_CHAMPION,
    BEATS_UNIGRAMS,
    CHECKS,
    HAS_LINEAGE,
    IS_WHOLE,
    NO_WORSE_SLICE,
    SUITE_IS_UNSEEN,
    WAS_CHAMPION,
    WITHIN_LIMITS,
)
from slipway.resources.promotions.promotion import Judgement, Promotion

CHAMPION = Promotion("m", "3", "hash", None, "", {"slipway.recipe": "other"}, "", "", 0.0)
COMPARED = {"difference": 0.02, "interval_low": 0.01, "interval_high": 0.03, "confidence": 0.95, "margin": 0.0}
FAILED: dict[str, tuple[str, dict[str, Any], str]] = {
    "guesses": (BEATS_UNIGRAMS, {}, "its loss 9 is not below 5.5, which a guess by frequency alone reaches: train it"),
    "worse": (
        BEATS_CHAMPION,
        COMPARED,
        "it is not better than the champion, version 3 of recipe other: in the mean 0.02 bits per byte worse, and up "
        "to 0.03 worse at 95% confidence, expected below 0",
    ),
    "too few": (
        BEATS_CHAMPION,
        {**COMPARED, "interval_high": None, "examples": 1},
        "1 examples are too few to compare it with the champion, version 3 of recipe other, expected 8 or more: add",
    ),
    "a slice": (
        NO_WORSE_SLICE,
        {"difference_by_slice": {"a": 0.1, "b": 0.2}, "slice_margin": 0.05},
        "in slice b it is worse than the champion, version 3 of recipe other by 0.2, expected at most 0.05",
    ),
    "a limit": (WITHIN_LIMITS, {"broken": ["loss: 9, expected at most 5"]}, "of gate: loss: 9, expected at most 5"),
    "never champion": (
        WAS_CHAMPION,
        {"champions": ["1", "3"]},
        "it was never the champion, expected one of 1, 3",
    ),
    "changed bytes": (IS_WHOLE, {"damaged": "x: found 3"}, "its bytes differ from the committed ones: x: found 3"),
    "a suite that it has seen": (
        SUITE_IS_UNSEEN,
        {"broken": "x"},
        "x: raise the suite's edition, or ask other questions",
    ),
    "damage": (HAS_LINEAGE, {"missing": ["code is not known"], "damaged": "x"}, "is incomplete: code is not known, x"),
}


def judgement(failed: dict[str, dict[str, Any]], undecided: str = "") -> Judgement:
    figures = {"loss": 9.0, "unigram_entropy": 5.5, "unit": "bits per byte", "checks": failed}
    outcomes = {name: name not in failed for name in (*CHECKS, *failed)}
    return Judgement("m", "candidate", "hash", outcomes, "a test", figures=figures, undecided=undecided)


@pytest.mark.parametrize("name", FAILED)
def test_each_failed_check_says_what_it_found_and_what_was_expected(name: str):
    check, figures, reasons = FAILED[name]
    assert reasons in checks.rejection_reasons(judgement({check: figures}), CHAMPION)


def test_only_the_check_that_failed_first_speaks():
    unexamined = {"note": checks.not_reached("its loss is not below the entropy").note}
    others = dict.fromkeys([BEATS_CHAMPION, NO_WORSE_SLICE, WITHIN_LIMITS, HAS_LINEAGE], unexamined)
    assert checks.rejection_reasons(judgement({BEATS_UNIGRAMS: {}, **others}), None) == checks.rejection_reasons(
        judgement({BEATS_UNIGRAMS: {}}), None
    )


def test_one_that_passed_or_waits_has_no_reason():
    assert checks.rejection_reasons(judgement({}), CHAMPION) == ""
    assert (
        checks.rejection_reasons(judgement({BEATS_CHAMPION: {"note": "not examined: x"}}, undecided="x"), CHAMPION)
        == ""
    )

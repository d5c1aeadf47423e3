"""What a page says of measured checkpoints: scores with their units, and the gate's judgement in one sentence."""

from typing import Any

import pytest

from slipway.resources.pages import measured
from slipway.resources.promotions.promotion import NOT_EXAMINED, Judgement
from slipway.trainer.record.scores import Score

pytestmark = pytest.mark.pure
BY = "ada"


def judged(passed: bool, **more: Any) -> Judgement:
    figures = {"suite_loss": 1.6051, "unit": "bits per byte", "champion_loss": 1.5899, "champion_version": 3}
    return Judgement("tiny", "f" * 64, "e" * 64, {"beats_champion": passed}, BY, figures=figures | more)


def test_a_score_has_its_units():
    assert measured.score_words(Score("c", 3.9191, 50.3, 1.6049, 0.3121, 9)) == (
        "1.605 bits per byte, loss 3.919, accuracy 31.2%"
    )
    assert measured.score_words(Score("c", 0.41, 1.5, 0.0, 0.9, 9)) == "loss 0.41, accuracy 90.0%"
    assert measured.score_words(Score("c", 0, 0, 0, 0, 0, "a block differs")) == "not measured: a block differs"


def test_a_rejection_says_which_check_and_both_figures():
    assert measured.verdict(judged(False), 400, "e" * 64) == (
        "Step 400 as tiny did not pass: beats champion; 1.605 bits per byte, compared with 1.59 of the champion, "
        "version 3."
    )


def test_a_check_that_was_not_made_is_not_named_as_one_that_failed():
    checks = {"beats_unigrams": {}, "has_lineage": {"note": f"{NOT_EXAMINED}its loss is not below the entropy"}}
    rejected = Judgement("tiny", "f" * 64, "", dict.fromkeys(checks, False), BY, figures={"checks": checks})
    assert rejected.failed == ["beats_unigrams"] and not rejected.passed
    assert measured.verdict(rejected, 400, "") == "Step 400 as tiny did not pass: beats unigrams."


def test_a_champion_says_so_only_while_it_is_one():
    first = judged(True, champion_loss=None)
    assert measured.verdict(first, 400, "f" * 64) == (
        "Step 400 as tiny passed every check and is the champion; "
        "1.605 bits per byte, without a champion to compare with."
    )
    assert "is the champion" not in measured.verdict(first, 400, "e" * 64)

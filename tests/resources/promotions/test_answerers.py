"""Answerers: what may not be the champion may not answer, whoever asks for it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from slipway.resources.mlflow.registry import MANIFEST_TAG, Version
from slipway.resources.promotions import promotion_holds, promotion_log
from slipway.resources.promotions.promotion import refusal_to_answer
from slipway.resources.promotions.promotion_holds import Approval
from slipway.resources.promotions.promotion_log import JUDGEMENT, SENT_BACK, Judgement, LostPromotion, Promotion
from slipway.trainer.base import codec

MODEL, BY = "tiny", "a test"


def version(number: int) -> Version:
    return Version(MODEL, str(number), f"slipway:/{number}", {MANIFEST_TAG: str(number) * 64})


def judged(durable: Path, number: int, against: int = 0, passed: bool = True, undecided: str = "", hours: float = 0):
    champion = str(against) * 64 if against else ""
    judgement = Judgement(
        MODEL, str(number) * 64, champion, {"leaks": passed}, BY, undecided=undecided, approval_hours=hours
    )
    codec.replace(promotion_log.judgement_path(durable, MODEL, judgement.candidate), judgement, JUDGEMENT)


def promoted(durable: Path, *numbers: int) -> None:
    """Promotions one after the other; 0 demotes, and a negative number comes back because the one before it failed."""
    current = 0
    for number in numbers:
        name, before = str(abs(number)), str(current) if current else None
        judgement = Judgement(MODEL, name * 64, str(current) * 64, {SENT_BACK: True}, BY) if number < 0 else None
        empty = Promotion(MODEL, "", "", before, "", {}, "anna", "it leaks", 1.0)
        promotion = Promotion(MODEL, name, name * 64, before, "", {}, "anna", "why not", 1.0, judgement)
        next = promotion_log.next_number(durable, MODEL)
        assert promotion_log.add(durable, next, promotion if number else empty)
        current = abs(number)


@pytest.mark.parametrize("numbers", [(1,), (2, 1), (1, 2), (1, 0, 1)])
def test_a_champion_and_a_former_one_may_answer(tmp_path: Path, numbers: Sequence[int]):
    promoted(tmp_path, *numbers)
    assert refusal_to_answer(tmp_path, version(1)) == ""


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("numbers", [(1, 0), (1, 0, 2), (2, 1, -2)])
def test_what_was_demoted_or_sent_back_may_not_answer_and_it_says_what_to_do(
    tmp_path: Path, numbers: Sequence[int], again: bool
):
    promoted(tmp_path, *numbers)
    refusal = refusal_to_answer(tmp_path, version(1), again)
    assert refusal.startswith("version 1 may not answer: anna ended its championship: ")
    assert refusal.endswith("slipway models rollback tiny 1")


def test_a_version_that_was_rejected_may_not_answer_again_either(tmp_path: Path):
    judged(tmp_path, 1, passed=False)
    for again in (False, True):
        assert "did not pass leaks against no champion" in refusal_to_answer(tmp_path, version(1), again)
    judged(tmp_path, 1, undecided="the champion is damaged")
    assert "waits: the champion is damaged" in refusal_to_answer(tmp_path, version(1))


def test_a_version_that_nobody_judged_may_not_answer_unless_it_has_answered_before(tmp_path: Path):
    assert "version 1 was not judged" in refusal_to_answer(tmp_path, version(1))
    assert refusal_to_answer(tmp_path, version(1), again=True) == ""


def test_a_version_that_passed_may_answer_while_nothing_holds_it(tmp_path: Path):
    judged(tmp_path, 1, hours=1)
    assert "a person must approve it" in refusal_to_answer(tmp_path, version(1))
    promotion_holds.approve(tmp_path / "models" / MODEL, "1" * 64, Approval(True, "anna", "read it"))
    assert refusal_to_answer(tmp_path, version(1)) == ""
    promotion_holds.set_freeze(tmp_path / "models" / MODEL, "ben", "the launch")
    assert "model tiny is frozen by ben" in refusal_to_answer(tmp_path, version(1))


def test_a_version_that_passed_against_another_champion_is_to_be_compared_first(tmp_path: Path):
    judged(tmp_path, 1)
    promoted(tmp_path, 2)
    assert "was not compared with the current champion, version 2" in refusal_to_answer(tmp_path, version(1))


def test_where_a_promotion_was_lost_nothing_new_may_answer(tmp_path: Path):
    promoted(tmp_path, 1, 2)
    for suffix in ("json", "copy"):
        (tmp_path / "models" / MODEL / "promotions" / f"000001.{suffix}").unlink()
    with pytest.raises(LostPromotion, match=r"000001\.json"):
        refusal_to_answer(tmp_path, version(2))

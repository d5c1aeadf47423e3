"""The log of promotions: a record that was lost is never read as none, and brings no former champion back."""

import dataclasses
from pathlib import Path

import pytest

from slipway.resources.promotions import promotion_holds, promotion_log
from slipway.resources.promotions.promotion_holds import Approval
from slipway.resources.promotions.promotion_log import SENT_BACK, Judgement, LostPromotion, Promotion
from slipway.trainer.base import codec
from slipway.trainer.record.files import Unreadable

MODEL, BY = "tiny", "a test"


def promotion(number: int, before: str | None = None) -> Promotion:
    """That version `number` became the champion."""
    name = str(number)
    return Promotion(MODEL, name, name * 64, before, f"slipway:/{name}", {}, BY, "it passed", float(number))


def demotion(before: int, judgement: Judgement | None = None) -> Promotion:
    return Promotion(MODEL, "", "", str(before), "", {}, BY, "it leaks", 9.0, judgement)


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    """Three promotions, which MLflow's alias has followed."""
    for number in (1, 2, 3):
        assert promotion_log.add(tmp_path, number, promotion(number, str(number - 1) if number > 1 else None))
    codec.replace(tmp_path / "models" / MODEL / "mirrored.json", {"promotions": 3})
    return tmp_path


def lose(durable: Path, number: int) -> None:
    for suffix in ("json", "copy"):
        (durable / "models" / MODEL / "promotions" / f"{number:06d}.{suffix}").unlink()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_promotion_that_was_lost_is_an_error_that_names_it_and_no_older_champion_comes_back(
    durable: Path, number: int
):
    lose(durable, number)
    expected = rf"model tiny: .*found no 00000{number}\.json.*slipway models rollback tiny VERSION --although-lost"
    for ask in (promotion_log.champion, promotion_log.champions, promotion_log.history):
        with pytest.raises(LostPromotion, match=expected):
            ask(durable, MODEL)


def test_a_promotion_of_which_the_copy_is_left_still_holds(durable: Path):
    (durable / "models" / MODEL / "promotions" / "000003.json").unlink()
    current = promotion_log.champion(durable, MODEL)
    assert current is not None and current.version == "3"
    assert promotion_log.next_number(durable, MODEL) == 4


def test_a_promotion_that_is_damaged_without_a_good_copy_is_named(durable: Path):
    for suffix in ("json", "copy"):
        (durable / "models" / MODEL / "promotions" / f"000002.{suffix}").write_bytes(b"rust")
    with pytest.raises(Unreadable, match=r"000002\.json"):
        promotion_log.champion(durable, MODEL)


@pytest.mark.parametrize(("number", "champion"), [(1, "3"), (2, "3"), (3, None)])
def test_a_loss_that_a_person_acknowledges_is_no_error_any_more(durable: Path, number: int, champion: str | None):
    lose(durable, number)
    assert promotion_log.acknowledge(durable, MODEL, "anna", "the disk was full") == [number]
    current = promotion_log.champion(durable, MODEL)
    assert (current.version if current else None) == champion
    record = promotion_log.history(durable, MODEL)[number - 1]
    assert (record.by, record.version) == ("anna", "") and f"promotion {number} was lost" in record.why
    assert promotion_log.withdrawals(promotion_log.history(durable, MODEL)) == {}
    assert promotion_log.acknowledge(durable, MODEL, "anna", "again") == []


def test_what_was_demoted_or_sent_back_is_withdrawn_until_it_is_promoted_again():
    one, two = promotion(1), promotion(2, "1")
    failed = Judgement(MODEL, one.manifest, two.manifest, {SENT_BACK: True}, BY, rollback=True)
    back = dataclasses.replace(one, before="2", judgement=failed)
    assert promotion_log.withdrawals([one, two]) == {}
    assert promotion_log.withdrawals([one, demotion(1)]).keys() == {one.manifest}
    assert promotion_log.withdrawals([one, demotion(1), one]) == {}
    assert promotion_log.withdrawals([one, two, back]).keys() == {two.manifest}
    assert promotion_log.withdrawals([one, two, back, two]) == {}


def test_a_refusal_that_was_lost_lets_no_older_approval_count(tmp_path: Path):
    folder, manifest = tmp_path / MODEL, "c" * 64
    for approval in (
        Approval(True, "anna", "read it"),
        Approval(False, "ben", "it leaks"),
        Approval(False, "eve", "no"),
    ):
        promotion_holds.approve(folder, manifest, approval)
    for suffix in ("json", "copy"):
        (folder / "approvals" / manifest / f"000002.{suffix}").unlink()
    with pytest.raises(Unreadable, match=r"found no 000002\.json"):
        promotion_holds.approvals(folder, manifest)

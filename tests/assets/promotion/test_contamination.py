"""What a candidate and the champion have seen of the suite, and what the gate makes of it."""

from typing import Any

import pytest

from slipway.assets.promotion import contamination
from slipway.assets.promotion.contamination import Contamination, ContaminationLimit
from slipway.assets.promotion.policy_checks import CheckOutcome

OWN, BEFORE = "snapshot of its training", "snapshot of the weights that it began with"
ALLOWED = ContaminationLimit("documents of suite held", texts=50, most=0.1)


def exposure(documents: int, **fields: Any) -> Contamination:
    return Contamination(frozenset(f"document {number}" for number in range(documents)), (OWN,), **fields)


@pytest.mark.parametrize(("documents", "passes"), [(0, True), (5, True), (6, False)])
def test_a_candidate_may_have_seen_as_much_of_the_suite_as_its_recipe_allows_and_no_more(documents: int, passes: bool):
    check = contamination.check(exposure(documents), {OWN}, None, ALLOWED)
    assert check.passed is passes and check.figures["leaked"] == documents
    assert check.figures["compared_with"] == [OWN]


def test_the_refusal_says_how_much_was_seen_of_which_suite_and_what_is_allowed():
    broken = contamination.check(exposure(6), {OWN}, None, ALLOWED).figures["broken"]
    assert broken == (
        "its training documents give away 6 of the 50 documents of suite held, expected at most a share of 0.1"
    )


def test_a_policy_that_only_tells_it_lets_the_candidate_pass_and_the_check_says_so():
    check = contamination.check(
        exposure(6), {OWN}, None, ContaminationLimit("documents of suite held", 50, 0.1, policy="reported")
    )
    assert check.passed and "give away 6 of the 50" in check.note and "gate.leaks lets it pass" in check.note


def test_training_documents_that_cannot_be_read_are_not_taken_for_unseen_ones():
    check = contamination.check(exposure(0, unreadable={OWN: "shard 3 is gone"}), {OWN}, None, ALLOWED)
    assert not check.passed and "shard 3 is gone" in check.figures["broken"]


def test_a_snapshot_that_the_first_weights_were_trained_on_and_that_is_gone_is_told():
    check = contamination.check(exposure(0, unreadable={BEFORE: "it is gone"}), {OWN}, None, ALLOWED)
    assert check.passed and check.figures["not_compared"] == {BEFORE: "it is gone"}


def test_a_champion_that_has_seen_the_suite_refuses_nobody_and_is_told():
    check = contamination.check(exposure(0), {OWN}, exposure(9), ALLOWED)
    assert check.passed and check.figures["champion_leaked"] == 9
    assert "the champion give away 9 of the 50" in check.note and "raise the suite's edition" in check.note
    assert contamination.check(exposure(0), {OWN}, exposure(5), ALLOWED).note == ""


def of_task(leaked: int, champion: int | None = None) -> CheckOutcome:
    allowed = ContaminationLimit("questions of task adding", 4, 0.0, remedy="ask other questions")
    return contamination.check(exposure(leaked), {OWN}, None if champion is None else exposure(champion), allowed)


def test_questions_of_one_task_that_were_in_its_training_documents_are_enough_to_refuse_a_candidate():
    documents = contamination.check(exposure(0), {OWN}, None, ALLOWED)
    both = contamination.together(documents, {"copying": of_task(0), "adding": of_task(1)})
    assert not both.passed and both.figures["questions"]["adding"]["leaked"] == 1
    assert both.figures["broken"] == (
        "its training documents give away 1 of the 4 questions of task adding, expected at most a share of 0"
    )
    assert contamination.together(documents, {"copying": of_task(0)}).passed


def test_documents_and_questions_that_it_has_seen_are_both_told():
    documents = contamination.check(exposure(6), {OWN}, None, ALLOWED)
    broken = contamination.together(documents, {"adding": of_task(1)}).figures["broken"]
    assert "6 of the 50 documents of suite held" in broken and "1 of the 4 questions of task adding" in broken


def test_questions_that_the_champion_has_seen_are_told():
    assert "the champion give away 2 of the 4 questions of task adding" in of_task(0, champion=2).note

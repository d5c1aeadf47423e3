"""Causes: every class has an answer, a budget and a section in the runbook."""

import re
from pathlib import Path

import pytest

from slipway.trainer.record import causes, rank_exit
from slipway.trainer.record.causes import CAUSES, CHOICES, Cause

pytestmark = pytest.mark.pure

RUNBOOK = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
EVERY = pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.name or "unknown")


def named(cause: Cause) -> str:
    return cause.name or "unknown"


@EVERY
def test_the_runbook_says_of_each_class_what_happens_by_itself_and_what_is_left_to_a_person(cause: Cause) -> None:
    section = RUNBOOK.partition(f"\n## `{named(cause)}`\n")[2].partition("\n## ")[0]
    assert cause.sentence in section
    assert re.search(r"\*\*By itself\.\*\* \w", section) and re.search(r"\*\*Left to you\.\*\* \w", section)


@EVERY
def test_the_runbooks_table_has_the_classs_answers_and_budget(cause: Cause) -> None:
    budget = cause.budget(3)
    budget_text = "none" if budget is None else budget
    answers = ", ".join(cause.answers)
    columns = f"{cause.sentence} | {cause.fault or 'nobody'} | {answers} | {budget_text}"
    row = f"| [`{named(cause)}`](#{named(cause)}) | {columns} |"
    assert row in RUNBOOK.splitlines()


def test_every_class_that_a_rank_may_leave_has_a_place_among_the_others() -> None:
    assert set(rank_exit.PRECEDENCE) <= set(CAUSES)
    assert len(set(rank_exit.PRECEDENCE)) == len(rank_exit.PRECEDENCE)


def test_a_recipe_may_choose_only_answers_that_its_cause_has() -> None:
    assert causes.wrong_choice({"diverged": "retry", "straggler": "replace"}) == ("", "")
    assert causes.wrong_choice({"diverged": "shrink"}) == (
        "diverged",
        "expected one of skip, retry, stop",
    )
    assert causes.wrong_choice({"gremlins": "stop"})[1].startswith("expected the policy of another cause: of ")


def test_without_a_choice_the_first_answer_holds() -> None:
    assert causes.answer(causes.DIVERGED, {}) == causes.SKIP
    assert causes.answer(causes.DIVERGED, {"diverged": "stop"}) == causes.STOP
    assert all(len(answers) > 1 for answers in CHOICES.values())

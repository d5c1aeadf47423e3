"""What generation tasks have asked, and whether training documents give it away."""

from pathlib import Path

import pytest

from slipway.assets.suites import leaks
from slipway.assets.suites.generation.answers import AnsweredExample, questions_of
from slipway.assets.suites.leaks import SuiteCheck
from slipway.recipes.suite import HeldOutSection

SHOTS = "Answer in one word.\nWhat is red? blood\nWhat is green? "
SECTION = HeldOutSection()


def answered(*pairs: tuple[str, str], metrics: tuple[str, ...] = ("exact_match",)) -> list[AnsweredExample]:
    return [
        AnsweredExample(number, prompt, expected, "?", metric, 0.0)
        for number, (prompt, expected) in enumerate(pairs)
        for metric in metrics
    ]


def test_a_question_is_its_prompt_with_the_right_answer_after_it_once_for_all_metrics():
    questions = questions_of(answered(("What is blue?", "sky"), metrics=("exact_match", "f1")))
    assert list(questions.values()) == ["What is blue? sky"]


def test_what_all_prompts_of_a_task_begin_with_is_no_part_of_a_question():
    questions = questions_of(answered((f"{SHOTS}What is blue?", "sky"), (f"{SHOTS}What is black?", "night")))
    assert list(questions.values()) == ["blue? sky", "black? night"]


def test_questions_that_are_all_alike_are_one_question():
    assert list(questions_of(answered(("What is blue?", "sky"), ("What is blue?", "sky"))).values()) == [
        "What is blue? sky"
    ]


def test_other_questions_and_another_meaning_of_a_leak_are_compared_anew(tmp_path: Path):
    texts = {"a": "What is blue?", "b": "What is black?"}
    known = leaks.questions(texts, SECTION)
    leaks.keep(tmp_path, SuiteCheck(known.sha256, "0" * 64, ("b",)))
    assert leaks.of(tmp_path, leaks.questions(dict(reversed(texts.items())), SECTION), "0" * 64).leaked == ("b",)
    for other in (
        leaks.questions({"a": "What is blue?"}, SECTION),
        leaks.questions(texts, SECTION.model_copy(update={"common": 3})),
    ):
        with pytest.raises((ValueError, FileNotFoundError)):  # it looks for the snapshot
            leaks.of(tmp_path, other, "0" * 64)

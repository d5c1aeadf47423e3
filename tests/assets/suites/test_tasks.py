"""Questions made offline: the same seed gives the same ones, each with one right answer."""

import pytest

from slipway.assets.suites import leaks, tasks
from slipway.assets.suites.suite import DOCUMENTS, Example
from slipway.recipes.suite import ArithmeticSection, ContinuationSection

pytestmark = pytest.mark.pure
TEXT = [Example(DOCUMENTS, " ".join(f"word{number}of{text}" for number in range(60))) for text in range(4)]


def test_a_question_goes_on_with_the_passage_that_follows_in_its_document():
    examples = tasks.continuations(TEXT, ContinuationSection(examples=10, words=6), seed=1)
    assert len(examples) == 10
    for example in examples:
        assert len(set(example.answers)) == tasks.ANSWERS
        assert any(example.text + example.answers[example.right] in document.text + " " for document in TEXT)


def test_the_same_seed_asks_the_same():
    section = ContinuationSection(examples=5, words=6)
    assert tasks.continuations(TEXT, section, 1) == tasks.continuations(TEXT, section, 1)
    assert tasks.continuations(TEXT, section, 1) != tasks.continuations(TEXT, section, 2)


def test_documents_too_small_for_wrong_answers_give_no_question():
    assert tasks.continuations(TEXT[:1], ContinuationSection(words=24), 1) == []


def test_the_right_answer_of_a_sum_is_the_sum():
    for example in tasks.arithmetic(ArithmeticSection(examples=50), seed=3):
        first, second = example.text.removesuffix(" = ").split(" + ")
        assert int(example.answers[example.right]) == int(first) + int(second)
        assert len(set(example.answers)) == tasks.ANSWERS


def sentence(first: int, count: int) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))


def test_an_example_that_shares_thirteen_words_with_a_training_document_leaked():
    held_out = [sentence(0, 40), sentence(100, 40)]
    training = [f"before {sentence(10, 13)} after", f"before {sentence(110, 12)} after"]
    assert leaks.leaked(held_out, training, common=10, share=0.9) == [0]


def test_an_example_of_fewer_words_leaked_where_a_training_document_has_just_the_same():
    held_out = [sentence(0, 5), sentence(10, 5), "", "一二三四五"]  # without spaces, each character is a word
    training = [sentence(0, 5).upper(), f"{sentence(10, 5)} and more", "一二三四五。"]
    assert leaks.leaked(held_out, training * 20, common=10, share=0.5) == [0, 3]


def test_a_passage_in_many_training_documents_is_boilerplate():
    held_out = [sentence(0, 100)]
    training = [f"{sentence(0, 13)} and x{number}" for number in range(11)]
    assert leaks.leaked(held_out, training, common=10, share=0.5) == []
    assert leaks.leaked(held_out, training[:10], common=10, share=0.5) == [0]


def test_a_test_that_leaked_many_times_is_no_boilerplate():
    assert leaks.leaked([sentence(0, 20)], [sentence(0, 20)] * 50, common=10, share=0.5) == [0]

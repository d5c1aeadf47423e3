"""Items: short texts of benchmarks are found whole, with one word changed, and not by chance."""

import random

import pytest

from slipway.assets.datasets.cleaning.items import LONGEST, TOLERANT, ItemSearch
from tests.assets.datasets.cleaning import corpora

pytestmark = pytest.mark.pure

SHORTEST = 6


def passage_of(item: str, text: str) -> str | None:
    first = ItemSearch([item], SHORTEST).first_in(text)
    return None if first is None else first.passage


def around(draw: random.Random, item: str) -> str:
    return " ".join([*corpora.prose(draw, 30), item, *corpora.prose(draw, 30)])


@pytest.mark.parametrize("count", [SHORTEST, 9, 12, 13, 26, LONGEST])
def test_an_item_is_found_whatever_its_capitals_and_punctuation(count: int):
    draw = random.Random(count)
    item = corpora.prose(draw, count)
    written = ", ".join(item).upper()
    assert passage_of(" ".join(item), around(draw, written)) == written
    assert passage_of(" ".join(item), written) == written


@pytest.mark.parametrize("count", [TOLERANT, 12, 13, 25, LONGEST])
def test_an_item_is_found_with_any_one_word_changed_missing_or_added(count: int):
    draw = random.Random(count)
    item = corpora.prose(draw, count)
    for index in range(count):
        for other in ([*item[:index], "other", *item[index + 1 :]], item[:index] + item[index + 1 :]):
            assert passage_of(" ".join(item), around(draw, " ".join(other))) is not None
        added = " ".join([*item[:index], "other", *item[index:]])
        assert passage_of(" ".join(item), around(draw, added)) is not None


def test_an_item_with_two_words_changed_is_another():
    draw = random.Random(1)
    item = corpora.prose(draw, 20)
    changed = [*item[:3], "other", *item[4:14], "other", *item[15:]]
    assert passage_of(" ".join(item), around(draw, " ".join(changed))) is None


def test_of_a_short_item_no_word_may_differ():
    item = "What is the capital of France"
    assert passage_of(item, "He asked: what is the capital of France? Paris.") == "what is the capital of France"
    assert passage_of(item, "He asked: what is the capital of Spain? Madrid.") is None


def test_items_that_are_too_short_are_not_looked_for():
    assert not ItemSearch(["what is it", "true", ""], SHORTEST)
    assert passage_of("one two three four five", "one two three four five") is None


@pytest.mark.parametrize("script", ["一", "ก", "ក"], ids=["Chinese", "Thai", "Khmer"])
def test_in_scripts_without_spaces_an_item_is_as_long_as_elsewhere(script: str):
    draw, signs = random.Random(9), [chr(ord(script) + index) for index in range(40)]
    before, item, behind = ("".join(draw.choices(signs, k=count)) for count in (60, 3 * SHORTEST, 60))
    assert passage_of(item, before + item + behind) == item
    assert passage_of(item[:-1], before + item + behind) is None


def test_the_first_in_the_document_is_named():
    draw = random.Random(2)
    items = [" ".join(corpora.prose(draw, 8)) for _ in range(20)]
    first = ItemSearch(items, SHORTEST).first_in(" ".join([*corpora.prose(draw, 9), items[7], items[3]]))
    assert first is not None and (first.item, first.passage) == (7, items[7])


def test_questions_that_begin_alike_are_distinguished():
    items = [f"Which of the following is the name of w{number}" for number in range(300)]
    search = ItemSearch(items, SHORTEST)
    assert search.first_in("which of the following is the name of something else") is None
    first = search.first_in(f"Q: {items[250]}?")
    assert first is not None and first.item == 250


def test_equal_hashes_of_unequal_words_are_no_item(monkeypatch: pytest.MonkeyPatch):
    from slipway.assets.datasets.cleaning import word_hashes

    monkeypatch.setattr(word_hashes, "hashes_at", lambda codes, starts, ends: starts * 0)
    draw = random.Random(3)
    assert passage_of(" ".join(corpora.prose(draw, 8)), " ".join(corpora.prose(draw, 50))) is None

"""Quality rules: what each measures, its threshold, and that recipes and functions agree."""

import inspect
import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assets.datasets.cleaning import rules
from assets.datasets.cleaning.statistics import TextStatistics
from recipes.cleaning import RulesSection

pytestmark = pytest.mark.pure

MEASURED = {
    "words_at_least": ("one two  three\nfour's end.", 5),
    "words_at_most": ("one two  three\nfour's end.", 5),
    "curly_brackets_at_most": ("a { b { c } }", 2),
    "lorem_ipsum_at_most": ("Lorem ipsum dolor. LOREM IPSUM", 2),
    "symbols_per_word_at_most": ("# a # b ... c …", 2 / 7),
    "mean_word_length_at_least": ("one three", 4.0),
    "mean_word_length_at_most": ("one three", 4.0),
    "alphabetic_words_at_least": ("one 2 x3 -- é", 3 / 5),
    "bullet_lines_at_most": ("- one\n  • two\n\nthree - four\n", 2 / 3),
    "ellipsis_lines_at_most": ("one...\ntwo…  \n..\nthree", 2 / 4),
    "punctuated_lines_at_least": ('One.\n"Two"\n三。\nfour\n\n', 3 / 4),
    "short_lines_at_most": (f"{'x' * 30}\n   {'y' * 30}   \n{'z' * 31}\n\n", 2 / 3),
    "duplicate_lines_at_most": ("one\ntwo\n one\n\n\none\n", 2 / 4),
    "duplicate_paragraphs_at_most": ("one\ntwo\n\nthree\n\none\ntwo\n", 1 / 3),
    "stop_words_at_least": ("The end OF the thing, and others", 3),
    "top_2gram_at_most": ("to be or not to be", 8 / 13),
    "duplicate_5grams_at_most": ("a b c d e f! A B C D E g, hh", 10 / 14),
}
"""A text for each rule, and the value that the rule measures."""


def beyond(name: str, value: float) -> float:
    """The next threshold that the value does not meet."""
    towards = math.inf if name.endswith("_at_least") else -math.inf
    return value + math.copysign(1, towards) if isinstance(value, int) else math.nextafter(value, towards)


def test_rules_of_recipes_and_functions_are_the_same():
    public = [name for name, each in inspect.getmembers(rules, inspect.isfunction) if "_at_" in name]
    assert sorted(RulesSection.model_fields) == sorted(rules.RULES) == sorted(public) == sorted(MEASURED)


@pytest.mark.parametrize("name", MEASURED)
def test_a_text_exactly_at_the_threshold_is_kept(name: str):
    text, value = MEASURED[name]
    assert rules.RULES[name](TextStatistics(text), value)


@pytest.mark.parametrize("name", MEASURED)
def test_a_text_just_beyond_the_threshold_is_removed(name: str):
    text, value = MEASURED[name]
    assert not rules.RULES[name](TextStatistics(text), beyond(name, value))


@pytest.mark.parametrize("name", MEASURED)
def test_every_rule_names_its_measure_and_the_source_of_its_threshold(name: str):
    documentation = inspect.getdoc(rules.RULES[name])
    assert documentation and any(f"{source}: " in documentation for source in ("Gopher", "C4", "FineWeb"))


def test_no_rule_is_on_by_default():
    assert rules.thresholds(RulesSection()) == {}


def test_the_first_rule_that_is_broken_is_the_reason():
    asked = rules.thresholds(RulesSection(curly_brackets_at_most=0, words_at_least=3))
    assert rules.first_broken(TextStatistics("{ }"), asked) == "words_at_least"
    assert rules.first_broken(TextStatistics("{ a b }"), asked) == "curly_brackets_at_most"
    assert rules.first_broken(TextStatistics("a b c"), asked) is None


@given(st.text(st.sampled_from("ab .…-#{\n\té道")))
def test_every_rule_accepts_any_text(text: str):
    statistics = TextStatistics(text)
    for name in rules.RULES:
        least = 0 if name.endswith("_at_least") else math.inf
        assert rules.RULES[name](statistics, least)


@given(st.lists(st.sampled_from(["one", "two", "three"]), min_size=5))
def test_repetition_is_the_same_as_by_counting_every_run_of_words(drawn: list[str]):
    runs = [tuple(drawn[start : start + 5]) for start in range(len(drawn) - 4)]
    covered = {start + place for start, run in enumerate(runs) if runs.count(run) > 1 for place in range(5)}
    letters = sum(map(len, drawn))
    assert TextStatistics(" ".join(drawn)).duplicate_grams(5) == sum(len(drawn[place]) for place in covered) / letters


@given(st.lists(st.sampled_from(["one", "two", "six"]), min_size=2))
def test_the_top_run_is_the_same_as_by_counting(drawn: list[str]):
    runs = Counter(itertools.pairwise(drawn))
    most = max(runs.values())
    expected = 6 * most / (3 * len(drawn)) if most > 1 else 0
    assert TextStatistics(" ".join(drawn)).top_gram(2) == expected


def test_a_recipe_with_a_share_above_one_is_refused():
    with pytest.raises(ValidationError, match="bullet_lines_at_most"):
        RulesSection(bullet_lines_at_most=1.5)

"""Quality rules: what each measures, its threshold, and that recipes and functions agree."""

import inspect
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from datatrove.pipeline.filters.gopher_repetition_filter import find_all_duplicate, find_top_duplicate, get_n_grams
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slipway.assets.datasets.cleaning import rules
from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.recipes.cleaning import C4, CODE, FINEWEB, GOPHER, RULE_NAMES, RulesSection

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
    "sentences_at_least": ("One. Two?\n\nThree, e.g. this one! «Four». Five", 5),
    "stop_words_at_least": ("The end OF the thing, and others", 3),
    "duplicate_line_characters_at_most": ("one\ntwo\n one\n", 3 / 13),
    "duplicate_paragraph_characters_at_most": ("one\ntwo\n\nthree\n\none\ntwo\n", 7 / 24),
    "newlines_per_word_at_most": ("one, two\nthree\n", 2 / 4),
    "mean_line_length_at_most": ("four\n\nsix   ", 10 / 3),
    "longest_line_at_most": ("four\n\nsix   ", 6),
    "alphabetic_characters_at_least": ("ab 1é", 3 / 5),
    "top_2gram_at_most": ("to be or not to be", 2 * 5 / 18),
    "top_3gram_at_most": ("to be it, to be it", 2 * 8 / 18),
    "top_4gram_at_most": ("a b c d e a b c d", 2 * 7 / 17),
    "duplicate_5grams_at_most": ("a b c d e f! A B C D E g, hh", 5 / 28),
    **{f"duplicate_{n}grams_at_most": ("ab " * 2 * n, 2 * n / (6 * n)) for n in range(6, 11)},
}
"""A text for each rule, and the value that the rule measures."""


def measured(name: str, text: str) -> float:
    return rules.measures(TextStatistics(text), {name: 0})[name]


def beyond(name: str, value: float) -> float:
    """The next threshold that the value does not meet."""
    towards = math.inf if name.endswith("_at_least") else -math.inf
    return value + math.copysign(1, towards) if isinstance(value, int) else math.nextafter(value, towards)


def test_rules_of_recipes_and_functions_are_the_same():
    public = [name for name, member in inspect.getmembers(rules, inspect.isfunction) if "_at_" in name]
    assert sorted(RULE_NAMES) == sorted(rules.RULES) == sorted(public) == sorted(MEASURED)


@pytest.mark.parametrize("name", MEASURED)
def test_a_text_exactly_at_the_threshold_is_kept(name: str):
    text, value = MEASURED[name]
    assert rules.keeps(name, measured(name, text), value)


@pytest.mark.parametrize("name", MEASURED)
def test_a_text_just_beyond_the_threshold_is_removed(name: str):
    text, value = MEASURED[name]
    assert not rules.keeps(name, measured(name, text), beyond(name, value))


@pytest.mark.parametrize("name", MEASURED)
def test_every_rule_names_its_measure_and_the_source_of_its_threshold(name: str):
    documentation = inspect.getdoc(rules.RULES[name])
    assert documentation and any(f"{source}: " in documentation for source in ("Gopher", "C4", "FineWeb", "StarCoder"))


def test_no_rule_is_on_by_default():
    assert RulesSection().thresholds() == {}


def test_the_first_rule_that_is_broken_is_the_reason():
    thresholds = RulesSection(curly_brackets_at_most=0, words_at_least=3).thresholds()
    measured = [rules.measures(TextStatistics(text), thresholds) for text in ("{ }", "{ a b }", "a b c")]
    assert [rules.first_broken(measures, thresholds) for measures in measured] == [
        "words_at_least",
        "curly_brackets_at_most",
        None,
    ]


@given(st.text(st.sampled_from("ab .…-#{\n\té道")))
def test_every_rule_accepts_any_text(text: str):
    assert all(measure >= 0 for measure in rules.measures(TextStatistics(text), dict.fromkeys(RULE_NAMES, 0)).values())


PIECES = st.lists(
    st.sampled_from(["one", "two", "three", ",", "(", "snake_case", "été", "\n"]), min_size=1, max_size=60
)


@given(PIECES, st.integers(5, 10))
def test_repetition_is_what_datatrove_measures(drawn: list[str], length: int):
    text = " ".join(drawn)
    reference = find_all_duplicate(_pieces(text), length)
    assert TextStatistics(text).duplicate_grams(length) == reference / len(text)


@given(PIECES, st.integers(2, 4))
def test_the_top_run_is_what_datatrove_measures(drawn: list[str], length: int):
    text = " ".join(drawn)
    grams = get_n_grams(_pieces(text), length)
    reference = find_top_duplicate(grams) if grams else 0
    assert TextStatistics(text).top_gram(length) == reference / len(text)


def test_on_the_standard_library_the_rules_of_repetition_decide_as_datatrove_does():
    """For each rule, 99.5 % of the documents at least: capitals make a difference there, and none here."""
    texts = [file.read_text() for file in sorted(Path(json.__file__).parents[1].glob("[a-h]*.py"))]
    for length, most in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10)):
        decisions = [TextStatistics(text).duplicate_grams(length) > most for text in texts]
        references = [find_all_duplicate(_pieces(text), length) / len(text) > most for text in texts]
        assert np.mean(np.equal(decisions, references)) >= 0.99 and 0 < sum(references) < len(texts)


def _pieces(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def test_a_preset_turns_on_the_rules_of_its_source():
    assert RulesSection(preset="gopher").thresholds()["duplicate_5grams_at_most"] == 0.15
    assert RulesSection(preset="code").thresholds() == {
        "mean_line_length_at_most": 100,
        "longest_line_at_most": 1000,
        "alphabetic_characters_at_least": 0.25,
    }
    assert set(RulesSection(preset="fineweb").thresholds()) > set(RulesSection(preset="gopher").thresholds())


def test_a_rule_beside_a_preset_replaces_the_presets_and_null_turns_it_off():
    mixed = RulesSection(preset="gopher", words_at_least=20, stop_words_at_least=None).thresholds()
    assert mixed["words_at_least"] == 20 and "stop_words_at_least" not in mixed and mixed["words_at_most"] == 100_000


def test_the_values_of_the_presets_are_those_that_the_rules_name():
    for source, preset in (("Gopher", GOPHER), ("C4", C4), ("StarCoder", CODE)):
        for name, value in preset.items():
            assert f"{source}: {value:,g}." in (rules.RULES[name].__doc__ or "")
    for name, value in FINEWEB.items():
        assert f": {value:,g}." in (rules.RULES[name].__doc__ or "")


def test_a_recipe_with_a_share_above_one_is_refused():
    with pytest.raises(ValidationError, match="bullet_lines_at_most"):
        RulesSection(bullet_lines_at_most=1.5)

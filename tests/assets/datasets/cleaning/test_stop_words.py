"""Stop words: texts have those of their own language, and no text is judged by those of another."""

import json
from pathlib import Path

import pytest

import benchmarks
from slipway.assets.datasets.cleaning import rules
from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.assets.datasets.cleaning.stop_words import STOP_WORDS
from slipway.assets.datasets.cleaning.words import hashes
from slipway.recipes.cleaning import GOPHER

pytestmark = pytest.mark.pure

ARTICLES = json.loads((Path(str(benchmarks.__path__[0])) / "cases" / "languages.json").read_text())
"""The first article of the Declaration of Human Rights, a sentence or two, by language."""
RULE = {"stop_words_at_least": GOPHER["stop_words_at_least"]}


@pytest.mark.parametrize("language", ARTICLES)
def test_an_article_has_enough_stop_words_of_its_language(language: str):
    least = {"stop_words_at_least": 1} if language == "ko" else RULE  # there most of them are parts of words
    measured = rules.measures(TextStatistics(ARTICLES[language], language), least)
    assert rules.first_broken(measured, least) is None


def test_an_article_has_too_few_stop_words_of_english():
    others = [ARTICLES[language] for language in ("de", "fi", "pl", "ru", "zh", "ja", "ko", "ar", "hi")]
    assert all(rules.first_broken(rules.measures(TextStatistics(each), RULE), RULE) for each in others)


@pytest.mark.parametrize("language", STOP_WORDS)
def test_each_language_has_eight_different_words(language: str):
    assert len(set(hashes(STOP_WORDS[language]).tolist())) == 8


def test_a_text_in_a_language_without_a_list_is_not_judged():
    assert rules.measures(TextStatistics("Ɛyɛ", "ak"), RULE) == {}


@pytest.mark.parametrize("language", ["unknown", "python"])
def test_source_code_and_what_is_no_language_are_judged_by_the_english_words(language: str):
    assert rules.measures(TextStatistics("# the end of the loop", language), RULE) == {"stop_words_at_least": 2}

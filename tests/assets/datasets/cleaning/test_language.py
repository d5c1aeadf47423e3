"""The language of a document, and the stop words of each language."""

import json
from pathlib import Path

import pytest

import benchmarks
from slipway.assets.datasets.cleaning import rules
from slipway.assets.datasets.cleaning.language import STOP_WORDS, language_of
from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.assets.datasets.cleaning.word_hashes import hashes
from slipway.recipes.cleaning import GOPHER

pytestmark = pytest.mark.pure

ENGLISH = "It is a truth universally acknowledged, that a single man must be in want of a wife."

ARTICLES = json.loads((Path(str(benchmarks.__path__[0])) / "cases" / "languages.json").read_text())
"""The first article of the Declaration of Human Rights, a sentence or two, by language."""
RULE = {"stop_words_at_least": GOPHER["stop_words_at_least"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, "en"),
        ("Longtemps, je me suis couché de bonne heure, et mes yeux se fermaient si vite.", "fr"),
        ("Es war einmal mitten im Winter, und die Schneeflocken fielen wie Federn vom Himmel.", "de"),
        ("道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。", "zh"),
        ("吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。", "ja"),
        ("12 34 + 56 = 90", "unknown"),
        ("", "unknown"),
        ("\ud800" + ENGLISH, "en"),
    ],
)
def test_the_text_decides_the_language_of_prose(text: str, expected: str):
    assert language_of("page.txt", text) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("a/b.py", "python"), ("B.RS", "rust"), ("x.cpp.gz", "c++"), ("x.ts#12", "typescript")]
)
def test_the_suffix_decides_the_language_of_source_code(name: str, expected: str):
    assert language_of(name, ENGLISH) == expected


GERMAN = "Es war einmal mitten im Winter, und die Schneeflocken fielen wie Federn vom Himmel herab. "


def test_a_heading_in_another_language_does_not_decide():
    """A licence in English stands before many texts that are not English."""
    assert language_of("x", ENGLISH * 3 + GERMAN * 100) == "de"


def test_the_end_of_a_text_counts_as_much_as_its_beginning():
    assert language_of("x", GERMAN * 100 + ENGLISH * 3) == "de"


def test_a_text_of_two_languages_is_of_neither_or_of_the_longer_one():
    assert language_of("x", ENGLISH * 10 + GERMAN * 40) in ("de", "unknown")


def test_the_markup_of_a_text_does_not_decide_its_language():
    sentence = "Dieser Abschnitt erklärt, wie man ein Fenster verschiebt, verkleinert oder schließt."
    tagged = "".join(
        f'<item style="compact"><p its:translate="yes">{sentence}</p><media type="image"/></item>' for _ in range(9)
    )
    assert (
        language_of("windows.page", f'<page xmlns="http://projectmallard.org/1.0/" type="topic">{tagged}</page>')
        == "de"
    )


def test_the_requests_of_a_page_of_a_manual_do_not_decide_its_language():
    license = r""".\" This is free documentation; you can redistribute it under the terms of the licence.
.\" This page was generated with a tool. Translate the source file, and do not change this one.
"""
    option = r""".TP
\fB\-r\fP, \fB\-\-recursive\fP, \fB\-\-no\-preserve\-root\fP
Verzeichnisse mit \fIallem\fP l\(:oschen
.PP
"""
    page = f'{license * 8}.TH RM 1 2026 coreutils "User Commands"\n{option * 5}'
    assert language_of("rm.1.gz", page) == "de"
    assert language_of("rm.1", f"'\\\" t\n{page}") == "de"


@pytest.mark.parametrize("language", ARTICLES)
def test_an_article_has_enough_stop_words_of_its_language(language: str):
    least = {"stop_words_at_least": 1} if language == "ko" else RULE  # there most of them are parts of words
    measured = rules.measures(TextStatistics(ARTICLES[language], language), least)
    assert rules.first_broken(measured, least) is None


def test_an_article_has_too_few_stop_words_of_english():
    others = [ARTICLES[language] for language in ("de", "fi", "pl", "ru", "zh", "ja", "ko", "ar", "hi")]
    assert all(rules.first_broken(rules.measures(TextStatistics(other), RULE), RULE) for other in others)


@pytest.mark.parametrize("language", STOP_WORDS)
def test_each_language_has_eight_different_words(language: str):
    assert len(set(hashes(STOP_WORDS[language]).tolist())) == 8


def test_a_text_in_a_language_without_a_list_is_not_judged():
    assert rules.measures(TextStatistics("Ɛyɛ", "ak"), RULE) == {}


@pytest.mark.parametrize("language", ["unknown", "python"])
def test_source_code_and_what_is_no_language_are_judged_by_the_english_words(language: str):
    assert rules.measures(TextStatistics("# the end of the loop", language), RULE) == {"stop_words_at_least": 2}

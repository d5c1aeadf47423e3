"""The language of a document."""

import pytest

from slipway.assets.datasets.cleaning.language import language_of

pytestmark = pytest.mark.pure

ENGLISH = "It is a truth universally acknowledged, that a single man must be in want of a wife."


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
    words = "Dieser Abschnitt erklärt, wie man ein Fenster verschiebt, verkleinert oder schließt."
    tagged = "".join(
        f'<item style="compact"><p its:translate="yes">{words}</p><media type="image"/></item>' for _ in range(9)
    )
    assert (
        language_of("windows.page", f'<page xmlns="http://projectmallard.org/1.0/" type="topic">{tagged}</page>')
        == "de"
    )


def test_the_requests_of_a_page_of_a_manual_do_not_decide_its_language():
    licence = r""".\" This is free documentation; you can redistribute it under the terms of the licence.
.\" This page was generated with a tool. Translate the source file, and do not change this one.
"""
    option = r""".TP
\fB\-r\fP, \fB\-\-recursive\fP, \fB\-\-no\-preserve\-root\fP
Verzeichnisse mit \fIallem\fP l\(:oschen
.PP
"""
    page = f'{licence * 8}.TH RM 1 2026 coreutils "User Commands"\n{option * 5}'
    assert language_of("rm.1.gz", page) == "de"
    assert language_of("rm.1", f"'\\\" t\n{page}") == "de"

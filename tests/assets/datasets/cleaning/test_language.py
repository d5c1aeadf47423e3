"""The language of a document."""

import pytest

from assets.datasets.cleaning.language import PREFIX, language_of

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


def test_only_the_beginning_of_a_text_decides():
    begun = (ENGLISH * 3)[:PREFIX]
    assert language_of("x", begun + " Es war einmal mitten im Winter." * 1000) == "en"

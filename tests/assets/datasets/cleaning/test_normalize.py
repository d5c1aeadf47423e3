"""Normalisation: equal texts become equal bytes, and nothing else changes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning.normalize import normalize

pytestmark = pytest.mark.pure

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nai\u0308ve", "naïve"),
        ("one\r\ntwo\rthree\n", "one\ntwo\nthree\n"),
        ("a\tb\x00c\x1bd\x7fe\x85f", "a\tbcdef"),
        ("a\x00\u0301", "á"),
        ("\ud83d\ude00 \ud800", "😀 \ufffd"),
    ],
)
def test_normalisation_rewrites_these_texts(text: str, expected: str):
    assert normalize(text) == expected


@given(ANY_TEXT)
def test_normalising_twice_changes_nothing_more(text: str):
    assert normalize(normalize(text)) == normalize(text)


@given(ANY_TEXT)
def test_the_result_is_nfc_and_utf_8_can_encode_it(text: str):
    result = normalize(text)
    assert unicodedata.is_normalized("NFC", result) and result.encode().decode() == result
    assert {unicodedata.category(character) for character in result if character not in "\t\n"}.isdisjoint({"Cc", "Cs"})


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\n\t")))
def test_a_text_that_needs_no_change_stays_the_same_object(text: str):
    assert normalize(text) is text


MARKS = st.text(
    st.sampled_from("\u0301\u0327\u0323\u0344\u0f71\u0f73\u0fb9\u0f75\u05b0\u3099e\u00e9\u1100\u1161"), max_size=80
)


@given(st.lists(MARKS, max_size=4))
def test_marks_are_in_the_order_of_unicode_however_many_there_are(runs: list[str]):
    text = "a".join(run * 3 for run in runs)
    assert normalize(text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("marks", ["\u0301\u0327", "\u0f73\u0fb9\u0301\u0327", "e\u0301\u0327"])
def test_a_megabyte_of_marks_is_normalised_though_pythons_order_of_them_takes_hours(marks: str):
    half = 1 << 17
    text = "x" + marks[0] * half + marks[1:] * half + marks[0] * half
    assert unicodedata.is_normalized("NFC", normalize(text))

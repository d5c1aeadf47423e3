"""Normalisation: equal texts become equal bytes, and nothing else changes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.datasets.cleaning.normalise import normalise

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
    assert normalise(text) == expected


@given(ANY_TEXT)
def test_normalising_twice_changes_nothing_more(text: str):
    assert normalise(normalise(text)) == normalise(text)


@given(ANY_TEXT)
def test_the_result_is_nfc_and_utf_8_can_encode_it(text: str):
    result = normalise(text)
    assert unicodedata.is_normalized("NFC", result) and result.encode().decode() == result
    assert {unicodedata.category(each) for each in result if each not in "\t\n"}.isdisjoint({"Cc", "Cs"})


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\n\t")))
def test_a_text_that_needs_no_change_stays_the_same_object(text: str):
    assert normalise(text) is text

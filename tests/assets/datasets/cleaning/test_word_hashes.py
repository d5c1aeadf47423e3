"""Words: what a word is, and that its hash depends on nothing else."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning import word_hashes
from slipway.trainer.base.characters import classes_of, codes_of

pytestmark = pytest.mark.pure


def words_in(text: str) -> list[str]:
    starts, ends = word_hashes.spans(classes_of(codes_of(text)))
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def test_a_word_is_letters_marks_and_digits():
    assert words_in("Don't stop_it, naïve: x1 -- नमस्ते!") == ["Don", "t", "stop", "it", "naïve", "x1", "नमस्ते"]


def test_in_scripts_without_spaces_every_character_is_a_word():
    assert words_in("道可道。abc かな ไทย") == ["道", "可", "道", "abc", "か", "な", "ไ", "ท", "ย"]


@given(st.text(st.characters(max_codepoint=127)))
def test_in_ascii_words_are_what_a_regular_expression_finds(text: str):
    assert words_in(text) == re.findall("[A-Za-z0-9]+", text)


@given(st.lists(st.text("abcXYZ019é道", min_size=1, max_size=9)), st.sampled_from([" ", ", ", "\n", " — "]))
def test_a_hash_depends_on_the_word_alone(drawn: list[str], between: str):
    together = word_hashes.hashes(between.join(drawn))
    alone = [word_hashes.hashes(word) for word in drawn]
    assert together.tolist() == (np.concatenate(alone).tolist() if alone else [])


def test_capitals_make_no_difference():
    assert word_hashes.hashes("The ÉCOLE").tolist() == word_hashes.hashes("the école").tolist()


def test_different_words_have_different_hashes():
    drawn = [f"{first}{second}" for first in "abcdefghij0123456789" for second in range(2000)]
    assert len(set(word_hashes.hashes(" ".join(drawn)).tolist())) == len(drawn)


def test_words_across_blocks_hash_as_everywhere():
    text = "word another " * word_hashes.BLOCK
    assert len(set(word_hashes.hashes(text).tolist())) == 2
    assert word_hashes.hashes(text)[:2].tolist() == word_hashes.hashes("word another").tolist()


def test_only_the_first_characters_of_a_very_long_word_count():
    long = "a" * word_hashes.BLOCK
    assert word_hashes.hashes(long + "b x").tolist() == word_hashes.hashes(long + "c x").tolist()


def test_hashes_never_change():
    """The hashes of different machines and years are compared with each other."""
    assert [hex(value) for value in word_hashes.hashes("the école")] == ["0x511ec4f9f4af60c0", "0x4c4d00814df2906e"]

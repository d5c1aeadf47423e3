"""Pieces: a tokenizer is trained on as much of the sample as fits the memory."""

import itertools
import random

import pytest

from slipway.assets.datasets.texts import tokenizer

pytestmark = pytest.mark.pure
MEGABYTES = 10.0
"""Megabytes of the sample that a recipe asks for."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two parts of 4 kB are measured, and the memory is that of 40 kB of unspaced text."""
    monkeypatch.setattr(tokenizer, "MEASURED_MEGABYTES", 0.004)
    monkeypatch.setattr(tokenizer, "PIECES_MEMORY", 40_000 * tokenizer.BYTE_BYTES)


def affordable(letters: range, word: int) -> float:
    """For a corpus of random words of so many of these letters."""
    draws = random.Random(0)

    def between(after: float, megabytes: float):
        size = (megabytes - after) * 1e6
        while size > 0:
            text = " ".join("".join(map(chr, draws.choices(letters, k=word))) for _ in range(max(60 // word, 1)))
            size -= len(text.encode())
            yield text

    return tokenizer.affordable_megabytes(MEGABYTES, between, tokenizer.splitting())


def test_of_text_whose_words_repeat_the_whole_sample_is_used():
    assert affordable(range(ord("a"), ord("e")), word=2) == MEGABYTES


def test_of_text_that_hardly_has_a_new_word_the_whole_sample_is_used():
    combinations = ["".join(letters) for letters in itertools.product("abcdefghij", repeat=3)]

    def between(after: float, megabytes: float) -> list[str]:
        return [" ".join(combinations), *(["z"] if after else [])]

    assert tokenizer.affordable_megabytes(MEGABYTES, between, tokenizer.splitting()) == MEGABYTES


def test_of_text_without_spaces_as_much_is_used_as_fits_the_memory():
    assert affordable(range(0x4E00, 0x9FA0), word=60) == pytest.approx(0.04, rel=0.25)


def test_a_sample_that_is_no_larger_than_what_is_measured_is_used_whole():
    assert tokenizer.affordable_megabytes(0.008, lambda after, megabytes: [], tokenizer.splitting()) == 0.008

"""Decontamination: every shared passage is found, and nothing is removed by chance or for boilerplate."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning import word_hashes
from slipway.assets.datasets.cleaning.decontamination import UNSPACED, Leak, contaminated, passage
from slipway.assets.datasets.cleaning.word_hashes import NGRAM, PASSAGE, WINDOW, fingerprints, of_passages
from slipway.recipes.cleaning import DecontaminationSection
from tests.assets.datasets.cleaning import corpora

pytestmark = pytest.mark.pure

FEW_WORDS = st.lists(st.sampled_from("abcd"), max_size=40)
HEADER = "licensed under the terms of a licence that nobody ever reads to its end and beyond"


def leaks(
    folder: Path, training: list[str], held_out: list[str], rule: DecontaminationSection | None = None
) -> list[Leak]:
    connection = corpora.connection(folder)
    connection.register("training", corpora.fingerprints(training))
    connection.register("held_out", corpora.fingerprints(held_out))
    rule = rule or DecontaminationSection()
    return list(contaminated(connection, "training", "held_out", training.__getitem__, held_out.__getitem__, rule))


def rows(all_leaks: list[Leak]) -> list[tuple[int, int]]:
    return [(leak.row, leak.held_out) for leak in all_leaks]


@given(FEW_WORDS, FEW_WORDS, st.lists(st.sampled_from("abcd"), min_size=PASSAGE, max_size=20), FEW_WORDS, FEW_WORDS)
def test_texts_with_13_words_in_common_have_a_common_fingerprint(before, after, shared, other_before, other_after):
    first = fingerprints(" ".join([*before, *shared, *after]))
    others = fingerprints(", ".join([*other_before, *shared, *other_after]).upper())
    assert set(first.tolist()) & set(others.tolist())


@given(st.lists(st.sampled_from("abcdefgh"), max_size=60))
def test_fingerprints_are_the_lowest_hash_of_every_window(drawn: list[str]):
    hashed = word_hashes.mixed(word_hashes.grams(word_hashes.hashes(" ".join(drawn)), NGRAM)).tolist()
    windows = [hashed[start : start + WINDOW] for start in range(len(hashed) - WINDOW + 1)]
    assert fingerprints(" ".join(drawn)).tolist() == sorted({min(window) for window in windows})


def test_about_2_of_7_ngrams_are_kept():
    drawn = corpora.prose(random.Random(0), 20_000)
    assert len(fingerprints(" ".join(drawn))) / (20_000 - NGRAM + 1) == pytest.approx(2 / (WINDOW + 1), rel=0.03)


def test_a_passage_of_13_words_contaminates_and_is_shown(tmp_path: Path):
    draw = random.Random(1)
    shared = corpora.prose(draw, PASSAGE)
    clean, dirty, test = (corpora.prose(draw, 200) for _ in range(3))
    dirty[50:50] = shared
    test[120:120] = shared
    leaked = leaks(tmp_path, [" ".join(clean), " ".join(dirty)], ["unrelated", "; ".join(test).upper()])
    assert leaked == [Leak(1, 1, " ".join(shared))]


def test_a_passage_of_12_words_does_not(tmp_path: Path):
    draw = random.Random(2)
    for _ in range(8):
        shared = corpora.prose(draw, PASSAGE - 1)
        document, test = (" ".join([*corpora.prose(draw, 50), *shared, *corpora.prose(draw, 50)]) for _ in range(2))
        assert leaks(tmp_path, [document], [test]) == []


@pytest.mark.parametrize("script", ["一", "ก", "ក"], ids=["Chinese", "Thai", "Khmer"])
def test_in_scripts_without_spaces_a_passage_is_as_long_as_13_words(tmp_path: Path, script: str):
    draw, signs = random.Random(9), [chr(ord(script) + index) for index in range(40)]
    shared, *rest = ("".join(draw.choices(signs, k=60)) for _ in range(5))
    short, enough = (PASSAGE * UNSPACED - 3, PASSAGE * UNSPACED)
    for length, expected in ((short, []), (enough, [(0, 0)])):
        document, test = rest[0] + shared[:length] + rest[1], rest[2] + shared[:length] + rest[3]
        assert rows(leaks(tmp_path, [document], [test])) == expected


def test_equal_hashes_of_unequal_words_are_no_evidence():
    """As if every fingerprint of the text were one of the held-out document."""
    draw = random.Random(3)
    document, test = (" ".join(corpora.prose(draw, 50)) for _ in range(2))
    assert passage(document, test, fingerprints(document)) is None


def test_equal_hashes_of_whole_passages_are_no_evidence_either(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(word_hashes, "hashes_at", lambda codes, starts, ends: np.zeros(len(starts), np.uint64))
    draw = random.Random(4)
    document, test = (" ".join(corpora.prose(draw, 50)) for _ in range(2))
    assert passage(document, test, of_passages(np.zeros(50, np.uint64))) is None


def with_header(draw: random.Random, count: int) -> list[str]:
    return [" ".join([HEADER, *corpora.prose(draw, 100)]) for _ in range(count)]


def test_a_licence_in_many_documents_is_no_contamination(tmp_path: Path):
    draw = random.Random(5)
    assert leaks(tmp_path, with_header(draw, 11), with_header(draw, 3)) == []


def test_a_passage_in_as_many_documents_as_the_recipe_allows_still_counts(tmp_path: Path):
    draw = random.Random(5)
    assert rows(leaks(tmp_path, with_header(draw, 10), with_header(draw, 3))) == [(row, 0) for row in range(10)]
    assert leaks(tmp_path, with_header(draw, 10), with_header(draw, 3), DecontaminationSection(common=9)) == []


def test_a_test_that_leaked_many_times_is_found_in_every_document(tmp_path: Path):
    draw = random.Random(6)
    question = corpora.prose(draw, 40)
    training = [" ".join([*corpora.prose(draw, 60), *question, *corpora.prose(draw, 60)]) for _ in range(50)]
    assert rows(leaks(tmp_path, training, [" ".join(question)])) == [(row, 0) for row in range(50)]
    diluted = " ".join([*question, *corpora.prose(draw, 80)])
    assert leaks(tmp_path, training, [diluted]) == []
    assert len(leaks(tmp_path, training, [diluted], DecontaminationSection(share=0.2))) == 50


def test_each_document_is_named_once_with_the_first_that_shows_it(tmp_path: Path):
    draw = random.Random(7)
    text = " ".join(corpora.prose(draw, 100))
    assert rows(leaks(tmp_path, [text, text], [text, text])) == [(0, 0), (1, 0)]


def test_texts_that_are_too_short_share_no_passage(tmp_path: Path):
    short = " ".join(HEADER.split()[: PASSAGE - 1])
    assert leaks(tmp_path, [short, ""], [short, ""]) == []


def test_the_result_is_that_of_comparing_all_texts(tmp_path: Path):
    draw = random.Random(8)
    passages = [corpora.prose(draw, 20) for _ in range(6)]

    def text() -> str:
        parts = [corpora.prose(draw, 30)]
        for _ in range(draw.randrange(3)):
            sentence = draw.choice(passages)
            parts += [sentence[draw.randrange(8) :], corpora.prose(draw, draw.randrange(30))]
        return " ".join(word for part in parts for word in part)

    def runs(text: str) -> set[tuple[str, ...]]:
        split = text.split()
        return {tuple(split[start : start + PASSAGE]) for start in range(len(split) - PASSAGE + 1)}

    training, held_out = [text() for _ in range(60)], [text() for _ in range(5)]
    tests = set().union(*map(runs, held_out))
    expected = [row for row, document in enumerate(training) if runs(document) & tests]
    leaked = leaks(tmp_path, training, held_out, DecontaminationSection(common=60))
    assert 5 < len(expected) < 55 and [leak.row for leak in leaked] == expected

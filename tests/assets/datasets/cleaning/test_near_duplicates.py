"""Near-duplicates: what is found among many documents, the bands that rows share, and the clusters."""

import itertools
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning import minhash, near_duplicates
from slipway.assets.datasets.cleaning.near_duplicates import Clusters, SharedBands, duplicates
from tests.assets.datasets.cleaning import corpora

pytestmark = pytest.mark.pure

LARGEST = 2**64 - 1

ROWS = [3, 5, 8, 13, 21, 34, 55, 89, 144, 233]
CONNECTIONS = st.lists(st.tuples(st.sampled_from(ROWS), st.sampled_from(ROWS)), max_size=30)


def clusters_of(folder: Path, rows: list[tuple[int, str]], similarity: float = 0.8) -> dict[int, int]:
    connection = corpora.connection(folder)
    connection.register("features", corpora.signatures(rows, similarity))
    table = duplicates(connection, "features", similarity, folder)
    assert connection.execute("show tables").fetchall() == [("features",)]
    return dict(zip(table["row"].to_pylist(), table["first"].to_pylist(), strict=True))


def pairs(similarity: float, count: int) -> list[tuple[str, str]]:
    draw = random.Random(7)
    return [corpora.similar(draw, similarity) for _ in range(count)]


def test_a_signature_estimates_the_similarity():
    for similarity in (0.3, 0.5, 0.8, 0.9):
        first, others = zip(*pairs(similarity, 60), strict=True)
        estimates = minhash.similarity(
            *(np.stack([minhash.signature(text) for text in side]) for side in (first, others))
        )
        deviation = (similarity * (1 - similarity) / minhash.PERMUTATIONS) ** 0.5
        assert abs(estimates.mean() - similarity) < 3 * deviation / 60**0.5 + 0.001
        assert estimates.std() < 1.4 * deviation


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.7, 0.8, 0.9])
def test_bands_agree_as_often_as_the_formula_says(similarity: float):
    shared = [
        set(minhash.bands(minhash.signature(a), similarity)) & set(minhash.bands(minhash.signature(b), similarity))
        for a, b in pairs(similarity, 200)
    ]
    expected = minhash.shared_band(similarity, *minhash.banding(similarity))
    assert sum(map(bool, shared)) / 200 == pytest.approx(expected, abs=0.05)


@given(st.floats(0.03, 0.99))
def test_bands_find_nineteen_of_twenty_pairs_of_any_similarity(similarity: float):
    bands, rows = minhash.banding(similarity)
    assert bands * rows <= minhash.PERMUTATIONS
    assert minhash.shared_band(similarity, bands, rows) >= minhash.RECALL


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.7, 0.8])
def test_pairs_a_tenth_above_the_similarity_are_found_and_a_tenth_below_they_are_not(tmp_path: Path, similarity: float):
    """Against the truth: the texts are made with a known similarity. 2.1 standard deviations are a tenth at 0.5."""
    above, below = (list(enumerate(itertools.chain(*pairs(similarity + far, 100)))) for far in (0.1, -0.1))
    assert len(clusters_of(tmp_path, above, similarity)) >= 95
    assert len(clusters_of(tmp_path, below, similarity)) <= 5


@given(st.lists(st.sampled_from("abc"), max_size=20), st.lists(st.sampled_from("abc"), max_size=20))
def test_equal_sets_of_shingles_have_equal_signatures(first: list[str], others: list[str]):
    def shingles(tokens: list[str]) -> set[tuple[str, ...]]:
        return {tuple(tokens[start : start + 5]) for start in range(max(len(tokens) - 4, 1))}

    agree = minhash.signature(" ".join(first)) == minhash.signature(" ".join(others))
    assert agree.all() == (shingles(first) == shingles(others))


def test_a_signature_never_changes():
    signature = minhash.signature("the quick brown fox jumps over the lazy dog")
    assert [hex(value) for value in signature[:2]] == ["0x31c5f282", "0x30394be0"]
    assert hex(minhash.bands(signature, 0.8)[0]) == "0xd9c4d13cee5375eb"


def test_a_text_without_words_is_similar_to_no_other(tmp_path: Path):
    assert len(minhash.bands(minhash.signature("... !"), 0.8)) == 0
    assert clusters_of(tmp_path, [(0, "..."), (1, "!!!"), (2, "")]) == {}


def test_planted_near_duplicates_at_09_are_found(tmp_path: Path):
    planted = pairs(0.9, 100)
    rows = [(number, text) for number, text in enumerate(text for pair in planted for text in pair)]
    assert clusters_of(tmp_path, rows) == {2 * number + 1: 2 * number for number in range(100)}


def test_documents_at_03_are_no_duplicates(tmp_path: Path):
    assert clusters_of(tmp_path, list(enumerate(text for pair in pairs(0.3, 100) for text in pair))) == {}


def test_documents_of_one_band_that_are_not_similar_enough_are_no_duplicates(tmp_path: Path):
    rows = list(enumerate(text for pair in pairs(0.7, 100) for text in pair))
    assert len(clusters_of(tmp_path, rows, similarity=0.6)) > 30 and clusters_of(tmp_path, rows, similarity=0.85) == {}


def test_a_chain_of_near_duplicates_is_one_cluster(tmp_path: Path):
    tokens = corpora.prose(random.Random(1), 1000)
    chain = [" ".join(tokens[start : start + 800]) for start in range(0, 200, 20)]
    assert clusters_of(tmp_path, list(enumerate(chain))) == dict.fromkeys(range(1, 10), 0)
    assert clusters_of(tmp_path, [(0, chain[0]), (1, chain[-1])]) == {}


def test_clusters_do_not_depend_on_order_or_numbers(tmp_path: Path):
    draw = random.Random(3)
    base = corpora.prose(draw, 300)
    texts = [" ".join(corpora.prose(draw, 300)) for _ in range(30)]
    for _ in range(30):
        copy = list(base)
        for index in draw.sample(range(300), draw.randrange(25)):
            copy[index] = "changed"
        texts.append(" ".join(copy))
    clusters = set()
    for _ in range(4):
        numbers = draw.sample(range(1000), len(texts))
        rows = list(zip(numbers, texts, strict=True))
        draw.shuffle(rows)
        first = {row: row for row in numbers} | clusters_of(tmp_path, rows)
        assert all(first[row] <= row for row in numbers)
        text_of = dict(rows)
        members = {
            representative: frozenset(text_of[row] for row in numbers if first[row] == representative)
            for representative in first.values()
        }
        clusters.add(frozenset(members.values()))
    assert len(clusters) == 1


@pytest.mark.parametrize("in_memory", [0, 40, 10_000])
def test_clusters_are_those_of_comparing_every_pair_of_a_band(tmp_path: Path, monkeypatch, in_memory: int):
    """Whether bands wait in files or in memory."""
    monkeypatch.setattr(near_duplicates, "PAIRS_IN_MEMORY", in_memory)
    draw = random.Random(5)
    base = corpora.prose(draw, 120)
    texts = []
    for _ in range(80):
        copy = list(base)
        for index in draw.sample(range(120), draw.randrange(8)):
            copy[index] = draw.choice(corpora.VOCABULARY)
        texts.append(" ".join(copy))
    signatures = [minhash.signature(text) for text in texts]
    bands = [set(minhash.bands(signature, 0.8)) for signature in signatures]
    first = list(range(80))
    for a in range(80):
        for b in range(a):
            if bands[a] & bands[b] and np.mean(signatures[a] == signatures[b]) >= 0.8:
                one, other = sorted((first[a], first[b]))
                first = [one if representative == other else representative for representative in first]
    expected = {row: representative for row, representative in enumerate(first) if representative != row}
    assert 1 < len(set(first)) < 60 and clusters_of(tmp_path, list(enumerate(texts))) == expected


@pytest.mark.parametrize("in_memory", [0, 1_000_000])
def test_many_copies_of_a_page_are_compared_in_little_time_and_memory(tmp_path: Path, monkeypatch, in_memory: int):
    """20,000 copies would be 200 million pairs."""
    monkeypatch.setattr(near_duplicates, "PAIRS_IN_MEMORY", in_memory)
    table = corpora.signatures([(0, "one page " * 20)])
    connection = corpora.connection(tmp_path, megabytes=300)
    connection.register("one", table)
    connection.execute("create table features as select i as row, bands, signature from one, range(20000) t(i)")
    assert duplicates(connection, "features", 0.8, tmp_path)["first"].to_pylist() == [0] * 19_999


def test_signatures_of_many_candidates_need_little_memory_of_duckdb(tmp_path: Path):
    """They are 54 MB: a join that carries them fails here."""
    numbers, pairs = np.random.default_rng(0), 60_000
    bands = np.repeat(numbers.integers(0, 1 << 63, (pairs, 16), np.uint64), 2, axis=0)
    drawn = np.repeat(numbers.integers(0, 1 << 32, (pairs, minhash.PERMUTATIONS), np.uint32), 2, axis=0)
    connection = corpora.connection(tmp_path, megabytes=32)
    connection.register("features", corpora.features(range(2 * pairs), bands, drawn))
    assert len(duplicates(connection, "features", 0.8, tmp_path)) == pairs


def shared_bands(folder: Path, bands: list[int], at_once: int) -> list[tuple[int, list[int]]]:
    """The shared bands in their order, and the rows of each; a row is the place of its band."""
    with SharedBands(folder / "bands") as shared:
        for begin in range(0, len(bands), at_once):
            some = np.array(bands[begin : begin + at_once], np.uint64)
            shared.add(some, np.arange(begin, begin + len(some)))
        rows = shared.rows().tolist()
        pairs = [(band, row) for part in shared.parts() for band, row in part.tolist()]
    assert rows == sorted(row for _, row in pairs) and not (folder / "bands").exists()
    order = list(dict.fromkeys(band for band, _ in pairs))
    return [(band, sorted(row for shared, row in pairs if shared == band)) for band in order]


@pytest.mark.parametrize("in_memory", [0, 100, 1 << 20])
@pytest.mark.parametrize("different", [1, 40, 1000, LARGEST])
def test_shared_bands_are_those_that_more_than_one_row_has(tmp_path, monkeypatch, in_memory: int, different: int):
    monkeypatch.setattr(near_duplicates, "PAIRS_IN_MEMORY", in_memory)
    draw = np.random.default_rng(different)
    bands = (draw.integers(0, different, 1000, np.uint64) * np.uint64(LARGEST // different)).tolist()
    bands += [0, 0, LARGEST, LARGEST, LARGEST, 2**56 - 1, 2**56, 2**56, *bands[:5]]
    shared = sorted(band for band, count in Counter(bands).items() if count > 1)
    expected = [(band, [row for row, value in enumerate(bands) if value == band]) for band in shared]
    assert shared_bands(tmp_path, bands, 64) == expected


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_without_a_band_or_with_one_no_band_is_shared(tmp_path, monkeypatch, in_memory: int):
    monkeypatch.setattr(near_duplicates, "PAIRS_IN_MEMORY", in_memory)
    assert shared_bands(tmp_path, [], 1) == [] and shared_bands(tmp_path, [7], 1) == []
    assert shared_bands(tmp_path, [7, 7], 1) == [(7, [0, 1])]


def test_a_row_that_shares_several_bands_is_listed_once(tmp_path):
    with SharedBands(tmp_path / "bands") as shared:
        shared.add(np.array([1, 2, 3, 1, 2, 4], np.uint64), np.array([8, 8, 8, 5, 5, 6]))
        assert shared.rows().tolist() == [5, 8]


def by_search(connections: list[tuple[int, int]]) -> dict[int, int]:
    """The smallest row that can be reached from each row."""
    representatives = dict[int, int]()
    for row in ROWS:
        reached = {row}
        for _ in ROWS:
            reached |= {end for pair in connections if reached & set(pair) for end in pair}
        representatives[row] = min(reached)
    return representatives


def firsts(of: Clusters) -> dict[int, int]:
    return {row: first for rows, smallest in of.firsts() for row, first in zip(rows, smallest, strict=True)}


@given(CONNECTIONS, st.integers(1, 30))
def test_a_cluster_is_what_can_be_reached(connections: list[tuple[int, int]], at_once: int):
    clusters = Clusters(np.array(ROWS))
    for begin in range(0, len(connections), at_once):
        some = connections[begin : begin + at_once]
        clusters.connect(*(np.array(ends) for ends in zip(*some, strict=True)))
        firsts(clusters)  # looking between two groups changes nothing
    assert firsts(clusters) == by_search(connections)


def test_a_chain_over_all_rows_is_one_cluster(monkeypatch):
    monkeypatch.setattr(near_duplicates, "PLACES_AT_ONCE", 64)
    rows = np.arange(10_000)
    for upwards in (1, -1):
        clusters = Clusters(rows)
        for at in np.array_split(rows[1:][::upwards], 100):
            clusters.connect(at, at - 1)
        assert set(firsts(clusters).values()) == {0}


@given(CONNECTIONS)
def test_equal_pairs_are_one(connections: list[tuple[int, int]]):
    first, others = (np.array([pair[end] for pair in connections], np.int64) for end in (0, 1))
    assert list(zip(*Clusters(np.array(ROWS)).distinct(first, others), strict=True)) == sorted(set(connections))

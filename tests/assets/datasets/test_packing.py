"""Packing: every document is in one shard, shards are of about one size, and a change moves only nearby cuts."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.snapshots import packing

pytestmark = pytest.mark.pure

LENGTHS = st.lists(st.integers(1, 5000), max_size=300)


def split(tokens: list[int], target: int, seed: int = 0) -> list[slice]:
    hashes = np.random.default_rng(seed).integers(0, 2**63, len(tokens), np.uint64)
    return packing.cuts(np.array(tokens, np.int64), hashes, target)


@given(LENGTHS, st.integers(1, 20_000))
def test_every_document_is_in_one_shard_and_in_its_place(tokens, target):
    numbers = [number for cut in split(tokens, target) for number in range(cut.start, cut.stop)]
    assert numbers == list(range(len(tokens)))


@given(LENGTHS, st.integers(1, 20_000))
def test_no_shard_is_empty_and_only_the_last_is_short(tokens, target):
    sizes = [sum(tokens[cut]) for cut in split(tokens, target)]
    assert all(sizes)
    assert all(size >= target / 2 for size in sizes[:-1])


@given(LENGTHS, st.integers(1, 20_000))
def test_a_shard_is_too_long_only_by_its_last_document(tokens, target):
    for cut in split(tokens, target):
        assert sum(tokens[cut]) <= target * 3 / 2 or sum(tokens[cut][:-1]) < target / 2


@given(LENGTHS, st.integers(1, 20_000), st.integers(1, 50))
def test_shards_are_the_same_whether_documents_come_at_once_or_in_batches(tokens, target, batch):
    hashes = np.random.default_rng(0).integers(0, 2**63, len(tokens), np.uint64)
    rows = pa.record_batch({"count": pa.array(tokens, pa.int64()), "hash": pa.array(hashes, pa.uint64())})
    batches = [rows.slice(begin, batch) for begin in range(0, len(tokens), batch)]
    parts = [part["hash"].to_pylist() for part in packing.parts(batches, target)]
    assert parts == [hashes[cut].tolist() for cut in split(tokens, target)]


def test_no_documents_make_no_shard():
    assert split([], 100) == []


def test_the_average_shard_has_the_wanted_size():
    sizes = [cut.stop - cut.start for cut in split([1] * 100_000, 500)]
    assert 450 < np.mean(sizes) < 550


@pytest.mark.parametrize("seed", range(5))
def test_an_insertion_moves_only_the_cuts_next_to_it(seed):
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 1000, 20_000)
    hashes = random.integers(0, 2**63, 20_000, np.uint64)
    index = int(random.integers(0, 20_000))

    def shards(tokens, hashes) -> set[tuple[int, ...]]:
        return {tuple(hashes[cut].tolist()) for cut in packing.cuts(tokens, hashes, 50_000)}

    before = shards(tokens, hashes)
    after = shards(np.insert(tokens, index, 700), np.insert(hashes, index, np.uint64(seed)))
    assert len(before) > 150
    assert len(after - before) <= 4

"""Data order: a permutation for each epoch, the same for any number of ranks, computed at any position."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slipway.trainer.loading import order
from slipway.trainer.loading.order import Order

pytestmark = pytest.mark.pure

keys = st.text(min_size=1, max_size=8)
seeds = st.integers(0, 2**63 - 1)
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(any)
"""Samples of each shard; some are shorter than a window and have none."""
blocks = st.integers(1, 32)


def shard_of(sizes: list[int], samples: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.cumsum(sizes), samples, "right")


@settings(deadline=None)
@given(total=st.integers(1, 3000), key=keys)
def test_a_permutation_takes_every_position_to_another_sample(total: int, key: str) -> None:
    permuted = order.permute(np.arange(total, dtype=np.uint64), total, key)
    assert np.array_equal(np.sort(permuted), np.arange(total))


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 65_535, 65_536, 65_537])
def test_a_permutation_is_a_bijection_near_powers_of_two_too(total: int) -> None:
    permuted = order.permute(np.arange(total, dtype=np.uint64), total, "seed/0")
    assert np.array_equal(np.sort(permuted), np.arange(total))
    assert np.array_equal(np.sort(order.shuffled(total, "seed/0")), np.arange(total))


@settings(deadline=None)
@given(sizes=sizes, seed=seeds, block=blocks, epoch=st.integers(0, 5))
def test_every_epoch_shows_every_sample_exactly_once(sizes: list[int], seed: int, block: int, epoch: int) -> None:
    total = sum(sizes)
    assert sorted(Order(sizes, seed, block).samples(epoch * total, total).tolist()) == list(range(total))


@settings(deadline=None)
@given(sizes=sizes, seed=seeds, block=blocks, first=st.integers(0, 300), split=st.integers(0, 120))
def test_the_order_is_the_same_however_it_is_divided_into_batches(
    sizes: list[int], seed: int, block: int, first: int, split: int
) -> None:
    """Also where a part crosses epochs, and when a new process begins in the middle."""
    samples = Order(sizes, seed, block).samples(first, 120)
    parts = [
        Order(sizes, seed, block).samples(first, split),
        Order(sizes, seed, block).samples(first + split, 120 - split),
    ]
    assert np.array_equal(samples, np.concatenate(parts))


@settings(deadline=None)
@given(
    sizes=sizes,
    block=blocks,
    batch=st.integers(7, 40),
    worlds=st.lists(st.sampled_from([1, 2, 3, 4, 5, 7]), min_size=1, max_size=12),
)
def test_any_number_of_ranks_sees_together_the_samples_of_one_rank(
    sizes: list[int], block: int, batch: int, worlds: list[int]
) -> None:
    """`worlds` is how many ranks there are at each step; every one of them computes the order by itself."""
    samples = []
    for step, world in enumerate(worlds):
        for rank in range(world):
            samples += (
                Order(sizes, 3, block).samples(step * batch, batch)[order.rank_slice(batch, rank, world)].tolist()
            )
    assert samples == Order(sizes, 3, block).samples(0, len(worlds) * batch).tolist()


@pytest.mark.parametrize("world", [1, 2, 3, 7, 8, 11])
@pytest.mark.parametrize("count", [7, 8, 64])
def test_the_ranks_divide_a_step_in_order_and_evenly(world: int, count: int) -> None:
    shares = [order.rank_slice(count, rank, world) for rank in range(world)]
    assert [number for share in shares for number in range(count)[share]] == list(range(count))
    lengths = [share.stop - share.start for share in shares]
    assert max(lengths) - min(lengths) <= 1


@settings(deadline=None)
@given(sizes=sizes, seed=seeds, block=blocks)
def test_an_epoch_finishes_a_block_of_shards_before_it_reads_others(sizes: list[int], seed: int, block: int) -> None:
    ordered = Order(sizes, seed, block)
    shards = shard_of(sizes, ordered.samples(0, len(ordered))).tolist()
    last = {shard: position for position, shard in enumerate(shards)}
    first = {shard: position for position, shard in reversed(list(enumerate(shards)))}
    for position in range(len(shards)):
        in_use = [shard for shard in last if first[shard] <= position <= last[shard]]
        assert len(in_use) <= block


@settings(deadline=None)
@example(sizes=[0, 2, 40, 1, 0, 23, 1], seed=9832, block=3, first=1)
@given(sizes=sizes, seed=seeds, block=blocks, first=st.integers(0, 2000))
def test_shards_are_listed_in_the_order_in_which_they_are_needed(
    sizes: list[int], seed: int, block: int, first: int
) -> None:
    """Every shard once; a sample comes from the two blocks' worth of shards that follow those already left.

    One block's worth, as its shards are read in any order; another, as the first block may be over for some of them.
    """
    ordered = Order(sizes, seed, block)
    foretold = ordered.shards(first)
    assert sorted(foretold) == list(range(len(sizes)))
    needed = list(dict.fromkeys(shard_of(sizes, ordered.samples(first, 2 * len(ordered))).tolist()))
    positions = [foretold.index(shard) for shard in needed]
    empty = sizes.count(0)
    assert all(position < rank + 2 * block - 1 + empty for rank, position in enumerate(positions))


def test_each_epoch_and_each_seed_has_its_own_order() -> None:
    orders = [Order([50] * 4, seed, 2).samples(epoch * 200, 200).tolist() for seed in range(3) for epoch in range(3)]
    assert len({tuple(samples) for samples in orders}) == 9


def test_epochs_mix_shards_with_others_each_time() -> None:
    """Which shards make the first block is drawn anew in every epoch."""
    ordered = Order([10] * 40, 1, 4)
    first = [frozenset(shard_of([10] * 40, ordered.samples(epoch * 400, 40)).tolist()) for epoch in range(20)]
    assert all(len(block) == 4 for block in first)
    assert len(set(first)) > 15


def test_an_order_looks_random() -> None:
    """In a block neighbours land far apart, and few samples stay where they were."""
    total = 10_000
    permuted = Order([250] * 40, 1, 64).samples(0, total).astype(np.int64)
    assert abs(np.corrcoef(np.arange(total), permuted)[0, 1]) < 0.05
    assert abs(np.corrcoef(permuted[:-1], permuted[1:])[0, 1]) < 0.05
    assert (permuted == np.arange(total)).sum() < 10


@pytest.mark.parametrize("shards", [1_000, 100_000])
def test_a_training_resumes_far_into_a_huge_split_without_computing_the_order_before(shards: int) -> None:
    """Of 10^9 samples, in an epoch far ahead: it takes memory for the shards alone. `benchmarks/loader.py` times it."""
    resumed = Order([10**9 // shards] * shards, 1, 64)
    tracemalloc.start()
    chosen = resumed.samples(10**6 * 10**9 + 123_456_789, 512)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(chosen.tolist())) == 512
    assert peak < 100_000 + 200 * shards


def test_the_order_of_a_seed_never_changes() -> None:
    """Trainings that are resumed by a later version of this code see the same samples."""
    assert Order([4, 6, 0, 5], 3, 2).samples(0, 15).tolist() == [6, 9, 7, 14, 12, 5, 8, 11, 10, 4, 13, 0, 3, 2, 1]
    assert Order([1000] * 300, 42, 64).samples(12 * 300_000 + 12_345, 5).tolist() == [
        183023,
        291453,
        48018,
        156492,
        26930,
    ]

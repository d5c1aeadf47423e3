"""Data order: a permutation an epoch, the same for any number of ranks, computed anywhere at once."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import order

keys = st.text(min_size=1, max_size=8)
totals = st.integers(1, 3000)


@settings(deadline=None)
@given(totals, keys)
def test_a_permutation_takes_every_position_to_another_sample(total: int, key: str) -> None:
    permuted = order.permute(np.arange(total, dtype=np.uint64), total, key)
    assert np.array_equal(np.sort(permuted), np.arange(total))


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 65_535, 65_536, 65_537])
def test_a_permutation_is_one_at_the_edges_of_the_powers_of_two(total: int) -> None:
    permuted = order.permute(np.arange(total, dtype=np.uint64), total, "seed/0")
    assert np.array_equal(np.sort(permuted), np.arange(total))


@settings(deadline=None)
@given(total=st.integers(1, 500), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 5))
def test_every_epoch_shows_every_sample_exactly_once(total: int, seed: int, epoch: int) -> None:
    assert sorted(order.samples(total, seed, epoch * total, total).tolist()) == list(range(total))


@settings(deadline=None)
@given(total=st.integers(20, 300), seed=st.integers(0, 1000), first=st.integers(0, 300), split=st.integers(0, 120))
def test_the_order_is_the_same_however_it_is_cut(total: int, seed: int, first: int, split: int) -> None:
    whole = order.samples(total, seed, first, 120)
    parts = [order.samples(total, seed, first, split), order.samples(total, seed, first + split, 120 - split)]
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("world", [1, 2, 3, 7, 8, 11])
@pytest.mark.parametrize("count", [7, 8, 64])
def test_the_ranks_share_out_a_step_in_order_and_evenly(world: int, count: int) -> None:
    step = order.samples(100, 3, 5 * count, count)
    shares = [step[order.share(count, rank, world)] for rank in range(world)]
    assert np.array_equal(np.concatenate(shares), step)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [order.samples(200, seed, epoch * 200, 200).tolist() for seed in range(3) for epoch in range(3)]
    assert len({tuple(each) for each in orders}) == 9


def test_an_order_looks_random() -> None:
    """Neighbours land far apart, and few samples stay where they were."""
    total = 10_000
    permuted = order.samples(total, 1, 0, total).astype(np.int64)
    assert abs(np.corrcoef(np.arange(total), permuted)[0, 1]) < 0.05
    assert abs(np.corrcoef(permuted[:-1], permuted[1:])[0, 1]) < 0.05
    assert (permuted == np.arange(total)).sum() < 10


def test_a_training_far_into_a_huge_split_resumes_at_once() -> None:
    total = 10**12
    begun = time.perf_counter()
    chosen = order.samples(total, 1, 5 * total - 50, 100)
    assert time.perf_counter() - begun < 1.0
    assert len(set(chosen.tolist())) == 100
    assert chosen.max() < total


def test_the_order_of_a_seed_never_changes() -> None:
    """Trainings that are resumed by a later version of this code see the same samples."""
    assert order.samples(10, 3, 0, 10).tolist() == [7, 2, 0, 1, 8, 5, 4, 9, 6, 3]
    assert order.samples(1000, 42, 12_345, 5).tolist() == [703, 594, 776, 264, 978]

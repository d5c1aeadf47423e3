"""The blend: exact shares, one order for any number of ranks, every epoch of every dataset whole, and no index."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.trainer.config.mix import parts
from slipway.trainer.loading import blend, order
from slipway.trainer.loading.blend import Blend, Source
from slipway.trainer.loading.order import Order

pytestmark = pytest.mark.pure
GOLDEN = [3, 7, 15, 8, 2, 0, 14, 9, 6, 11, 13, 1, 5, 12, 10, 13]
few = settings(deadline=None, max_examples=20)

sizes = st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any)
weights = st.integers(1, 9)
datasets = st.lists(st.tuples(sizes, weights, weights), min_size=2, max_size=4)
"""Of each dataset the samples of its shards, and its weight before and after position 50."""

Datasets = list[tuple[list[int], int, int]]


def blended(dataset_list: Datasets, block: int = 3, change: int = 50) -> Blend:
    sources, shards, samples = [], 0, 0
    for number, (shard_sizes, _, _) in enumerate(dataset_list):
        sources.append(Source(str(number), Order(shard_sizes, f"7/{number}", block), shards, samples))
        shards, samples = shards + len(shard_sizes), samples + sum(shard_sizes)
    phases = [(0, {str(p): dataset[1] for p, dataset in enumerate(dataset_list)})]
    phases += [(change, {str(p): dataset[2] for p, dataset in enumerate(dataset_list)})]
    return Blend(sources, [(begin, parts(shares)) for begin, shares in phases])


def of(blend: Blend, samples: np.ndarray) -> np.ndarray:
    """The source of each sample."""
    return np.searchsorted([source.first_sample for source in blend.sources], samples, "right") - 1


@few
@given(shares=st.lists(st.integers(1, 40), min_size=2, max_size=6))
def test_each_repetition_of_the_pattern_gives_every_dataset_exactly_its_share(shares: list[int]) -> None:
    pattern = blend._pattern(tuple(shares))
    assert np.bincount(pattern.sources).tolist() == shares


@few
@given(shares=st.lists(st.integers(1, 40), min_size=2, max_size=6))
def test_no_dataset_is_ever_a_whole_sample_ahead_of_its_share(shares: list[int]) -> None:
    pattern = blend._pattern(tuple(shares))
    for number, share in enumerate(shares):
        counts = np.cumsum(pattern.sources == number)
        due = np.arange(1, len(pattern) + 1) * share / sum(shares)
        assert (counts - due).max() < 1
        assert (due - counts).max() < len(shares) - 1


def test_the_positions_are_known_at_which_the_shares_change() -> None:
    assert blended([([9], 1, 2), ([9], 1, 3)]).changes == [50]


@few
@given(dataset_list=datasets, first=st.integers(0, 200), split=st.integers(0, 90))
def test_the_order_is_the_same_however_it_is_divided_into_batches(
    dataset_list: Datasets, first: int, split: int
) -> None:
    samples = blended(dataset_list).samples(first, 90)
    halves = [blended(dataset_list).samples(first, split), blended(dataset_list).samples(first + split, 90 - split)]
    assert np.array_equal(samples, np.concatenate(halves))


@few
@given(dataset_list=datasets, worlds=st.lists(st.sampled_from([1, 2, 3, 4, 7]), min_size=1, max_size=8))
def test_any_number_of_ranks_sees_together_the_samples_of_one_rank(dataset_list: Datasets, worlds: list[int]) -> None:
    batch, samples = 11, []
    for step, world in enumerate(worlds):
        for rank in range(world):
            span = order.rank_slice(batch, rank, world)
            samples += blended(dataset_list).samples(step * batch, batch)[span].tolist()
    assert samples == blended(dataset_list).samples(0, len(worlds) * batch).tolist()


@few
@given(dataset_list=datasets)
def test_each_dataset_gives_its_own_order_without_a_gap_also_where_weights_change(dataset_list: Datasets) -> None:
    """So every epoch of it has every sample once, whatever else is in the mix."""
    mixed = blended(dataset_list)
    samples = mixed.samples(0, 300)
    which = of(mixed, samples)
    for number, source in enumerate(mixed.sources):
        own = samples[which == number] - np.uint64(source.first_sample)
        assert np.array_equal(own, source.order.samples(0, len(own)))


@few
@given(dataset_list=datasets, position=st.integers(0, 250))
def test_what_a_position_has_consumed_is_what_the_positions_before_it_gave(
    dataset_list: Datasets, position: int
) -> None:
    mixed = blended(dataset_list)
    counted = np.bincount(of(mixed, mixed.samples(0, position)), minlength=len(dataset_list))
    assert mixed.consumed(position).tolist() == counted.tolist()
    passes = [count / len(source.order) for count, source in zip(counted, mixed.sources, strict=True)]
    assert list(mixed.passes(position).values()) == passes


@few
@given(dataset_list=datasets, first=st.integers(0, 150), count=st.integers(1, 60))
def test_a_step_reads_only_shards_of_the_blocks_that_it_names(dataset_list: Datasets, first: int, count: int) -> None:
    mixed = blended(dataset_list)
    every = [size for shard_sizes, _, _ in dataset_list for size in shard_sizes]
    read = set(np.searchsorted(np.cumsum(every), mixed.samples(first, count), "right").tolist())
    blocks = list(mixed.blocks(first, first + count))
    assert read <= {shard for block in blocks for shard in block.shards}
    assert blocks[0].begin == first and blocks[-1].end >= first + count
    assert [block.end for block in blocks[:-1]] == [block.begin for block in blocks[1:]]
    assert len(read) <= mixed.shards_at_most(count)


@few
@given(dataset_list=datasets, first=st.integers(0, 150))
def test_every_shard_is_named_once_in_the_order_of_need(dataset_list: Datasets, first: int) -> None:
    shards = blended(dataset_list).shards(first)
    assert sorted(shards) == list(range(sum(len(shard_sizes) for shard_sizes, _, _ in dataset_list)))


def test_a_dataset_that_a_phase_leaves_out_goes_on_where_it_was() -> None:
    sources = [Source("a", Order([10], "1/a", 4), 0, 0), Source("b", Order([10], "1/b", 4), 1, 10)]
    mixed = Blend(sources, [(0, {"a": 1, "b": 1}), (4, {"a": 1}), (8, {"b": 1})])
    assert mixed.consumed(4).tolist() == [2, 2]
    assert mixed.consumed(8).tolist() == [6, 2]
    assert mixed.consumed(10).tolist() == [6, 4]
    assert mixed.samples(8, 2).tolist() == (sources[1].order.samples(2, 2) + np.uint64(10)).tolist()


def test_the_order_of_a_mix_never_changes() -> None:
    """A resumed training goes on in the order in which it began: with whatever version of this code."""
    mixed = blended([([5, 7], 3, 1), ([4], 1, 1)], change=12)
    assert mixed.samples(0, 16).tolist() == GOLDEN


def test_ten_to_the_nine_samples_need_no_index() -> None:
    large, small = Order([10**7] * 90, "1/a", 64), Order([10**7] * 10, "1/b", 64)
    sources = [Source("a", large, 0, 0), Source("b", small, 90, 9 * 10**8)]
    mixed = Blend(sources, [(0, parts({"a": 0.61803, "b": 0.38197}))])
    assert mixed.consumed(10**9).tolist() == [618_000_000, 382_000_000]
    assert len(mixed.samples(10**9, 64)) == 64

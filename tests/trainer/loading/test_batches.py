"""Batches: a step's windows, the same for any ranks, however far they are read ahead."""

import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from slipway.trainer.data import shards
from slipway.trainer.data.sequences import Sequences, Tokens
from slipway.trainer.loading.batches import Batches
from slipway.trainer.loading.order import Order, rank_slice
from tests.conftest import until
from tests.trainer.counting import snapshot_of

SIZE, STEPS = 7, 30


@pytest.fixture
def sequences(tmp_path: Path) -> Sequences:
    return Sequences(tmp_path, snapshot_of(tmp_path, 100, 33, 250, 61), "train", 8)


def batches(sequences: Sequences, rank: int = 0, ranks: int = 1) -> Batches[Tokens]:
    return Batches(sequences, Order(sequences.sizes, 1, 2), SIZE, rank_slice(SIZE, rank, ranks), STEPS)


def test_the_ranks_windows_make_up_the_batch_of_one_rank(sequences: Sequences) -> None:
    alone, three = batches(sequences), [batches(sequences, rank, 3) for rank in range(3)]
    for step in range(STEPS):
        assert np.array_equal(
            np.concatenate([rank_batches.windows(step) for rank_batches in three]), alone.windows(step)
        )


def test_a_step_that_was_read_ahead_has_the_same_samples(sequences: Sequences) -> None:
    moving = batches(sequences)
    for step in range(STEPS):
        assert np.array_equal(moving.windows(step), batches(sequences).windows(step))


def test_a_step_may_be_asked_for_out_of_turn(sequences: Sequences) -> None:
    jumping = batches(sequences)
    for step in (0, 9, 9, 3):
        assert np.array_equal(jumping.windows(step), batches(sequences).windows(step))


class SlowSecondRead:
    """Samples whose rows are their numbers; the second read ends only when it is `released`."""

    def __init__(self) -> None:
        self._reads = 0
        self.started = threading.Event()
        self.released = threading.Event()

    def empty(self, count: int) -> npt.NDArray[np.uint64]:
        return np.zeros(count, np.uint64)

    def read(
        self, numbers: npt.NDArray[np.uint64], out: npt.NDArray[np.uint64] | None = None
    ) -> npt.NDArray[np.uint64]:
        assert out is not None
        self._reads += 1
        if self._reads == 2:
            self.started.set()
            assert self.released.wait(60)
        out[:] = numbers
        return out


def test_a_read_ahead_that_ends_late_does_not_write_over_another_step() -> None:
    samples, order, last = SlowSecondRead(), Order([SIZE * STEPS], 1, 1), STEPS - 1
    jumping = Batches(samples, order, SIZE, slice(0, SIZE), STEPS)
    jumping.windows(0)
    assert samples.started.wait(60)
    threading.Timer(0.2, samples.released.set).start()
    rows = jumping.windows(last)
    until(lambda: "read-ahead" not in {thread.name for thread in threading.enumerate()}, "the read-ahead to end")
    assert np.array_equal(rows, order.samples(last * SIZE, SIZE))


def test_the_next_step_is_read_into_a_second_buffer_while_this_one_is_in_use(tmp_path: Path) -> None:
    """Each step of these reads a shard of its own, so that asking for the shard tells of the reading."""
    brought: list[shards.TokenShard] = []
    snapshot = snapshot_of(tmp_path, *[SIZE * 8 + 1] * STEPS)
    sequences = Sequences(tmp_path, snapshot, "train", 8, brought.append)
    ahead = Batches(sequences, Order(sequences.sizes, 1, 1), SIZE, slice(0, SIZE), STEPS)
    windows = ahead.windows(0)
    before = windows.copy()
    until(lambda: len(brought) == 2, "the second step to be read")
    assert np.array_equal(windows, before)


def test_nothing_is_read_beyond_the_last_step(sequences: Sequences) -> None:
    last, before = batches(sequences), set(threading.enumerate())
    last.windows(STEPS - 1)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "read-ahead"]


def test_a_shard_that_cannot_be_read_is_an_error_of_the_step_that_needs_it(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, *[SIZE * 8 + 1] * STEPS)
    sequences = Sequences(tmp_path, snapshot, "train", 8)
    order = Order(sequences.sizes, 1, 1)
    shards.shard_path(tmp_path, sequences.shards[order.shards(0)[1]]).unlink()
    ahead = Batches(sequences, order, SIZE, slice(0, SIZE), STEPS)
    ahead.windows(0)
    with pytest.raises(FileNotFoundError):
        ahead.windows(1)

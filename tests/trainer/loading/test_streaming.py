"""Streaming start: training begins while shards are being copied, and reads the same samples."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from slipway.trainer.base import verify
from slipway.trainer.data import shards
from slipway.trainer.data.sequences import Sequences, Tokens
from slipway.trainer.loading.batches import Batches
from slipway.trainer.loading.order import Order
from slipway.trainer.loading.streaming import Streaming
from slipway.trainer.objects.origins import Folder
from slipway.trainer.staging import stage
from tests.trainer.conftest import Training
from tests.trainer.counting import snapshot_of

SHARDS, STEPS, SIZE, LENGTH = 16, 60, 6, 8


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    return tmp_path / "durable"


@pytest.fixture
def nvme(tmp_path: Path) -> Path:
    return tmp_path / "nvme"


@pytest.fixture
def snapshot(durable: Path) -> shards.TextSnapshot:
    snapshot = snapshot_of(durable, *(100 + 7 * number for number in range(SHARDS)))
    shards.write_manifest(durable, snapshot)
    return snapshot


@pytest.fixture
def streaming(snapshot: shards.TextSnapshot, durable: Path, nvme: Path) -> Streaming:
    return Streaming(snapshot, [Folder(durable)], nvme)


def batches_of(
    tier: Path, snapshot: shards.TextSnapshot, streaming: Streaming | None = None
) -> tuple[Batches[Tokens], Order]:
    """Batches that shuffle two shards together."""
    sequences = Sequences(tier, snapshot, "train", LENGTH, streaming.bring if streaming else None)
    order = Order(sequences.sizes, 1, 2)
    return Batches(sequences, order, SIZE, slice(0, SIZE), STEPS), order


def staged(tier: Path) -> set[str]:
    return {path.stem for path in (tier / "shards").glob("*.shard")}


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


FAULTS: list[Callable[[Path], None]] = [flip_a_bit, truncate, Path.unlink]


def test_every_batch_is_the_one_of_a_staged_snapshot(
    snapshot: shards.TextSnapshot, durable: Path, nvme: Path, streaming: Streaming
) -> None:
    streamed, order = batches_of(nvme, snapshot, streaming)
    before, _ = batches_of(durable, snapshot)
    streaming.stage([snapshot.shards()[number] for number in order.shards(0)])
    for step in range(STEPS):
        assert np.array_equal(streamed.windows(step), before.windows(step))


def test_the_first_batch_is_there_while_most_shards_are_missing(
    snapshot: shards.TextSnapshot, nvme: Path, streaming: Streaming
) -> None:
    streamed, order = batches_of(nvme, snapshot, streaming)
    assert staged(nvme) == set()
    streamed.windows(0)
    # The two of the first block; and two of the next, should the second batch have been read ahead already.
    assert staged(nvme) <= {snapshot.shards()[number].blake3 for number in order.shards(0)[:4]}


def test_the_other_shards_are_staged_in_the_order_in_which_they_are_needed(
    snapshot: shards.TextSnapshot, nvme: Path, streaming: Streaming
) -> None:
    _, order = batches_of(nvme, snapshot)
    expected = [snapshot.shards()[number] for number in order.shards(3 * SIZE)]
    streaming.stage(expected).join()
    written = sorted((nvme / "shards").glob("*.shard"), key=lambda path: path.stat().st_mtime_ns)
    assert [path.stem for path in written] == [shard.blake3 for shard in expected]


def test_shards_of_other_splits_are_staged_last(
    snapshot: shards.TextSnapshot, nvme: Path, streaming: Streaming
) -> None:
    streaming.stage(snapshot.shards()[:3]).join()
    assert staged(nvme) == {shard.blake3 for shard in snapshot.shards()}


def test_a_streamed_snapshot_counts_as_staged_afterwards(
    snapshot: shards.TextSnapshot, nvme: Path, streaming: Streaming
) -> None:
    assert not stage.is_staged(snapshot.sha256, nvme)
    streaming.stage([]).join()
    assert stage.is_staged(snapshot.sha256, nvme)


@pytest.mark.parametrize("damage", FAULTS)
def test_a_shard_that_is_damaged_at_one_origin_comes_from_the_next(
    snapshot: shards.TextSnapshot, durable: Path, nvme: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    other = shutil.copytree(durable, tmp_path / "other")
    for shard in snapshot.shards():
        damage(shards.shard_path(durable, shard))
    streamed, _ = batches_of(nvme, snapshot, Streaming(snapshot, [Folder(durable), Folder(other)], nvme))
    resident, _ = batches_of(other, snapshot)
    for step in range(STEPS):
        assert np.array_equal(streamed.windows(step), resident.windows(step))


@pytest.mark.parametrize("damage", FAULTS)
def test_a_shard_that_is_damaged_on_the_nvme_is_repaired_before_it_is_read(
    snapshot: shards.TextSnapshot, durable: Path, nvme: Path, streaming: Streaming, damage: Callable[[Path], None]
) -> None:
    shutil.copytree(durable, nvme)
    for shard in snapshot.shards():
        damage(shards.shard_path(nvme, shard))
    streamed, _ = batches_of(nvme, snapshot, streaming)
    resident, _ = batches_of(durable, snapshot)
    for step in range(STEPS):
        assert np.array_equal(streamed.windows(step), resident.windows(step))


def test_a_shard_that_is_damaged_at_every_origin_is_never_read_and_named_where_it_is_needed(
    snapshot: shards.TextSnapshot, durable: Path, nvme: Path, streaming: Streaming, capsys: pytest.CaptureFixture[str]
) -> None:
    streamed, order = batches_of(nvme, snapshot, streaming)
    lost = snapshot.shards()[order.shards(0)[-1]]
    flip_a_bit(shards.shard_path(durable, lost))
    streaming.stage([]).join()
    assert lost.blake3 in capsys.readouterr().err
    assert staged(nvme) == {shard.blake3 for shard in snapshot.shards()} - {lost.blake3}
    with pytest.raises(ValueError, match=rf"{lost.blake3}.*no origin has it whole"):
        for step in range(STEPS):
            streamed.windows(step)


def test_several_processes_may_copy_the_same_shards_at_once(
    snapshot: shards.TextSnapshot, durable: Path, nvme: Path
) -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            one = Streaming(snapshot, [Folder(durable)], nvme)
            for shard in snapshot.shards():
                pool.submit(one.bring, shard)
    for shard in snapshot.shards():
        assert verify.measure(shards.shard_path(nvme, shard)).blake3 == shard.blake3


STREAMS = {"staging": "streaming"}


@pytest.mark.slow
def test_a_training_has_the_losses_of_one_that_was_staged_before(training: Training, finished: Training) -> None:
    training.configure(placement=STREAMS)
    training.completed()
    assert training.losses() == finished.losses()
    assert training.tensors() == finished.tensors()


@pytest.mark.slow
def test_two_ranks_that_continue_where_nothing_is_staged_yet_have_the_same_losses(
    training: Training, finished_by_two: Training
) -> None:
    training.configure(placement=STREAMS)
    training.interrupted(8, ranks=2)
    shutil.rmtree(training.nvme)
    training.completed(ranks=2)
    assert training.losses() == finished_by_two.losses()
    assert training.tensors_by_name() == finished_by_two.tensors_by_name()


@pytest.mark.slow
def test_a_training_ends_although_its_staging_hangs(training: Training) -> None:
    """A pipe that nobody writes to stands for a shard on a server that has stopped to answer."""
    training.configure(placement=STREAMS, run={"steps": 2, "shuffle_shards": 1}, validation={"every": 0})
    sizes = [(shard.tokens - 1) // 32 for shard in training.snapshot.splits["train"].shards]
    last = training.snapshot.splits["train"].shards[Order(sizes, 3, 1).shards(0)[-1]]
    hanging = shards.shard_path(training.durable, last)
    hanging.unlink()
    os.mkfifo(hanging)
    training.completed()
    assert last.blake3 not in staged(training.nvme)

"""Sequences: windows and tails over the shards' token streams."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.trainer.base import atomic, digest
from slipway.trainer.data import shards
from slipway.trainer.data.sequences import Sequences
from tests.trainer.counting import snapshot_of

pytestmark = pytest.mark.pure


def sequences_of(tier: Path, length: int, *lengths: int) -> Sequences:
    return Sequences(tier, snapshot_of(tier, *lengths), "train", length)


def every(sequences: Sequences) -> np.ndarray:
    return sequences.read(np.arange(len(sequences), dtype=np.uint64))


def test_a_window_has_one_token_more_than_a_sequence_for_the_last_target(tmp_path: Path) -> None:
    sequences = sequences_of(tmp_path, 4, 9, 6)
    assert every(sequences).tolist() == [
        [0, 1, 2, 3, 4],
        [4, 5, 6, 7, 8],
        [10_000, 10_001, 10_002, 10_003, 10_004],
    ]


def test_windows_come_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    sequences = sequences_of(tmp_path, 4, 9, 9)
    assert sequences.read(np.array([3, 0, 3], np.uint64))[:, 0].tolist() == [10_004, 0, 10_004]


def test_reading_no_windows_is_an_empty_batch(tmp_path: Path) -> None:
    assert sequences_of(tmp_path, 4, 9).read(np.array([], np.uint64)).shape == (0, 5)


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5), length=st.integers(1, 20))
def test_windows_and_tails_predict_every_token_that_has_a_predecessor_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int
) -> None:
    if max(lengths) <= length:
        lengths = [*lengths, length + 1]
    sequences = sequences_of(tmp_path_factory.mktemp("tier"), length, *lengths)
    rows = [*every(sequences), *(sequences.tail(tail)[0] for tail in sequences.tail_shards)]
    predicted = sorted(token for row in rows for token in row[1:].tolist())
    assert predicted == [10_000 * shard + at for shard, count in enumerate(lengths) for at in range(1, count)]
    for row in rows:
        assert np.array_equal(np.diff(row), np.ones(len(row) - 1)), "a row is one run of one shard"


def test_a_shard_that_windows_cover_wholly_has_no_tail(tmp_path: Path) -> None:
    sequences = sequences_of(tmp_path, 4, 9, 8)
    assert sequences.tail_shards == [1]
    assert sequences.tail(1).tolist() == [[10_004, 10_005, 10_006, 10_007]]


def test_a_split_shorter_than_a_sequence_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split train of counting has no sequence of 9 tokens"):
        sequences_of(tmp_path, 9, 9, 9)


def test_tokens_stay_as_narrow_as_on_the_disk(tmp_path: Path) -> None:
    assert every(sequences_of(tmp_path, 4, 9)).dtype == np.uint32


def test_windows_can_be_read_into_an_existing_buffer(tmp_path: Path) -> None:
    buffer = np.zeros((2, 5), np.uint32)
    read = sequences_of(tmp_path, 4, 9).read(np.array([1, 0], np.uint64), buffer)
    assert read is buffer
    assert buffer[:, 0].tolist() == [4, 0]


def test_a_shard_is_brought_once_just_before_it_is_first_read(tmp_path: Path) -> None:
    brought: list[shards.TokenShard] = []
    snapshot = snapshot_of(tmp_path, 9, 9, 9)
    sequences = Sequences(tmp_path, snapshot, "train", 4, brought.append)
    assert brought == []
    for number in (5, 4, 0, 5):
        sequences.read(np.array([number], np.uint64))
    assert brought == [snapshot.shards()[2], snapshot.shards()[0]]


def test_a_truncated_shard_is_refused_by_name(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, 100)
    path = shards.shard_path(tmp_path, snapshot.shards()[0])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=rf"{path.name}: found 408 bytes, expected 416"):
        every(Sequences(tmp_path, snapshot, "train", 4))


def test_a_dtype_of_a_later_version_is_refused_with_what_can_be_read(tmp_path: Path) -> None:
    snapshot = dataclasses.replace(snapshot_of(tmp_path, 100), dtype="uint64")
    with pytest.raises(ValueError, match=r"snapshots/\w{64}\.json: dtype: found 'uint64', expected uint16 or uint32"):
        Sequences(tmp_path, snapshot, "train", 4)


def test_a_manifest_of_a_later_version_is_refused_with_the_version_that_can_be_read(tmp_path: Path) -> None:
    later = atomic.canonical_json({"format": "slipway.snapshot/99"})
    path = shards.manifest_path(tmp_path, digest.sha256(later))
    atomic.create_only(path, later)
    with pytest.raises(ValueError, match=rf"{path}: format: found 'slipway.snapshot/99', expected '{shards.FORMAT}'"):
        shards.read_manifest(tmp_path, digest.sha256(later))

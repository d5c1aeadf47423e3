"""Sequences: windows and tails over the shards' token streams."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import shards
from trainer.data import Sequences


def snapshot_of(tier: Path, *lengths: int) -> shards.Snapshot:
    """Shards whose tokens count up, each from a multiple of 10,000: a token says where it lies."""
    streams = [np.arange(length, dtype=np.uint32) + 10_000 * number for number, length in enumerate(lengths)]
    written = tuple(shards.write_shard(tier, [stream], "uint32") for stream in streams)
    split = shards.Split(len(lengths), sum(lengths), sum(lengths), written)
    return shards.Snapshot(
        dataset="counting",
        recipe="0" * 64,
        source={},
        documents={},
        tokenizer=shards.Tokenizer("0" * 64, 100_000, 0),
        dtype="uint32",
        splits={"train": split},
    )


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
    rows = [*every(sequences), *(tail[0] for tail in sequences.tails())]
    predicted = sorted(token for row in rows for token in row[1:].tolist())
    assert predicted == [10_000 * shard + at for shard, count in enumerate(lengths) for at in range(1, count)]
    for row in rows:
        assert np.array_equal(np.diff(row), np.ones(len(row) - 1)), "a row is one run of one shard"


def test_a_shard_that_windows_cover_wholly_has_no_tail(tmp_path: Path) -> None:
    assert [tail.tolist() for tail in sequences_of(tmp_path, 4, 9, 8).tails()] == [[[10_004, 10_005, 10_006, 10_007]]]


def test_a_split_shorter_than_a_sequence_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split train of counting has no sequence of 9 tokens"):
        sequences_of(tmp_path, 9, 9, 9)


def test_a_truncated_shard_is_refused_by_name(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, 100)
    path = shards.shard_path(tmp_path, snapshot.shards()[0])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=rf"{path.name}: found 408 bytes, expected 416"):
        Sequences(tmp_path, snapshot, "train", 4)

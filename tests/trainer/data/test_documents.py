"""Documented sequences: each token of a window with the place at which its document begins."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.data import shards
from slipway.trainer.data.documents import DocumentedSequences, begins
from slipway.trainer.data.sequences import Sequences

pytestmark = pytest.mark.pure


def sequences(tier: Path, *lengths: int) -> DocumentedSequences:
    """Windows of 4 tokens over one shard whose documents have these lengths; each token is its document's number."""
    texts = [np.full(length, number, np.uint32) for number, length in enumerate(lengths)]
    split = shards.TokenSplit(len(texts), sum(lengths), 0, (shards.write_shard(tier, texts, "uint32"),))
    record = shards.TokenizerRecord("0" * 64, 100_000, 0)
    snapshot = shards.TextSnapshot("documents", "0" * 64, {}, {}, record, "uint32", {"train": split})
    return DocumentedSequences(Sequences(tier, snapshot, "train", 4))


def test_a_document_that_begins_in_a_window_begins_at_its_place_there(tmp_path: Path) -> None:
    windows = sequences(tmp_path, 2, 1, 6, 4).read(np.array([0, 1, 2], np.uint64))
    assert windows.tokens.tolist() == [[0, 0, 1, 2, 2], [2, 2, 2, 2, 2], [2, 3, 3, 3, 3]]
    assert windows.begins.tolist() == [[0, 0, 2, 3, 3], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]]


def test_rows_are_read_into_the_room_that_is_given(tmp_path: Path) -> None:
    samples = sequences(tmp_path, 3, 3, 3)
    room = samples.empty(1)
    assert samples.read(np.array([1], np.uint64), room) is room
    assert room.begins.tolist() == [[0, 0, 2, 2, 2]]


def test_a_tail_has_the_bounds_of_its_documents_too(tmp_path: Path) -> None:
    samples = sequences(tmp_path, 5, 1, 2)
    [tail] = map(samples.tail, samples.tail_shards)
    assert tail.tokens.tolist() == [[0, 1, 2, 2]]
    assert tail.begins.tolist() == [[0, 1, 2, 2]]


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 30), st.integers(1, 20))
def test_every_token_has_the_beginning_of_the_last_document_that_began_before_it(
    lengths: list[int], start: int, length: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<u8")
    expected = [
        max(0, *(int(offset) - start for offset in offsets if offset <= start + token)) for token in range(length)
    ]
    assert begins(offsets, start, length).tolist() == expected

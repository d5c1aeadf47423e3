"""Repeated hashes: the same as counting each gives, in memory and in files, which are gone afterwards."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from assets.datasets.cleaning import repeated
from assets.datasets.cleaning.repeated import RepeatedHashes

pytestmark = pytest.mark.pure

LARGEST = 2**64 - 1


def found(folder: Path, hashes: list[int], at_once: int) -> list[int]:
    stream = RepeatedHashes(folder / "hashes")
    for begin in range(0, len(hashes), at_once):
        stream.add(np.array(hashes[begin : begin + at_once], np.uint64))
    result = [each for some in stream.found() for each in some.tolist()]
    assert not (folder / "hashes").exists()
    return result


@pytest.mark.parametrize("in_memory", [0, 100, 1 << 22])
@pytest.mark.parametrize("different", [1, 40, 1000, LARGEST])
def test_they_are_those_that_were_counted_more_than_once(tmp_path, monkeypatch, in_memory: int, different: int):
    monkeypatch.setattr(repeated, "IN_MEMORY", in_memory)
    draw = np.random.default_rng(different)
    hashes = (draw.integers(0, different, 2000, np.uint64) * np.uint64(LARGEST // different)).tolist()
    hashes += [0, 0, LARGEST, LARGEST, LARGEST, 2**58 - 1, 2**58, 2**58, *hashes[:5]]
    assert found(tmp_path, hashes, 64) == sorted(each for each, count in Counter(hashes).items() if count > 1)


@pytest.mark.parametrize("in_memory", [0, 1 << 22])
def test_without_a_hash_or_with_one_none_is_repeated(tmp_path, monkeypatch, in_memory: int):
    monkeypatch.setattr(repeated, "IN_MEMORY", in_memory)
    assert found(tmp_path, [], 1) == [] and found(tmp_path, [7], 1) == []
    assert found(tmp_path, [7, 7], 1) == [7]


def test_copies_of_one_hash_take_no_more_space_than_two_of_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(repeated, "IN_MEMORY", 1000)
    stream = RepeatedHashes(tmp_path / "hashes")
    for _ in range(20):
        stream.add(np.full(500, 7, np.uint64))
    assert sum(path.stat().st_size for path in (tmp_path / "hashes").iterdir()) <= 20 * 2 * 8
    assert [each for some in stream.found() for each in some.tolist()] == [7]

"""Shared bands: the same as counting each gives, in memory and in files, which are gone afterwards."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from slipway.assets.datasets.cleaning import shared_bands
from slipway.assets.datasets.cleaning.shared_bands import SharedBands

pytestmark = pytest.mark.pure

LARGEST = 2**64 - 1


def found(folder: Path, bands: list[int], at_once: int) -> list[tuple[int, list[int]]]:
    """The shared bands in their order, and the rows of each; a row is the place of its band."""
    with SharedBands(folder / "bands") as shared:
        for begin in range(0, len(bands), at_once):
            some = np.array(bands[begin : begin + at_once], np.uint64)
            shared.add(some, np.arange(begin, begin + len(some)))
        rows = shared.rows().tolist()
        pairs = [(band, row) for part in shared.parts() for band, row in part.tolist()]
    assert rows == sorted(row for _, row in pairs) and not (folder / "bands").exists()
    order = list(dict.fromkeys(band for band, _ in pairs))
    return [(band, sorted(row for each, row in pairs if each == band)) for band in order]


@pytest.mark.parametrize("in_memory", [0, 100, 1 << 20])
@pytest.mark.parametrize("different", [1, 40, 1000, LARGEST])
def test_they_are_those_that_more_than_one_row_has(tmp_path, monkeypatch, in_memory: int, different: int):
    monkeypatch.setattr(shared_bands, "IN_MEMORY", in_memory)
    draw = np.random.default_rng(different)
    bands = (draw.integers(0, different, 1000, np.uint64) * np.uint64(LARGEST // different)).tolist()
    bands += [0, 0, LARGEST, LARGEST, LARGEST, 2**56 - 1, 2**56, 2**56, *bands[:5]]
    shared = sorted(band for band, count in Counter(bands).items() if count > 1)
    expected = [(band, [row for row, each in enumerate(bands) if each == band]) for band in shared]
    assert found(tmp_path, bands, 64) == expected


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_without_a_band_or_with_one_none_is_shared(tmp_path, monkeypatch, in_memory: int):
    monkeypatch.setattr(shared_bands, "IN_MEMORY", in_memory)
    assert found(tmp_path, [], 1) == [] and found(tmp_path, [7], 1) == []
    assert found(tmp_path, [7, 7], 1) == [(7, [0, 1])]


def test_a_row_that_shares_several_bands_is_listed_once(tmp_path):
    with SharedBands(tmp_path / "bands") as shared:
        shared.add(np.array([1, 2, 3, 1, 2, 4], np.uint64), np.array([8, 8, 8, 5, 5, 6]))
        assert shared.rows().tolist() == [5, 8]

"""Sorted rows: in order whatever the order in which they come, and a batch of them in memory."""

import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.reading import sorted_rows, sources
from slipway.assets.datasets.reading.sorted_rows import SortedRows
from slipway.assets.datasets.reading.sources import SourceFile

pytestmark = pytest.mark.pure

AT_ONCE = 4


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch):
    monkeypatch.setattr(sorted_rows, "ROWS_AT_ONCE", AT_ONCE)


def rows_of(names: list[str], folder: Path | None = None) -> SortedRows[SourceFile]:
    return sources.source_files(folder).extend(SourceFile(name, len(name), "1", True) for name in names)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3), unique=True, max_size=30))
def test_rows_come_in_the_order_of_their_names_in_utf_8(names: list[str]):
    rows = rows_of(names)
    expected = sorted(names, key=str.encode)
    assert len(rows) == len(names)
    for _ in range(2):
        assert [row.name for row in rows] == expected
    assert all(isinstance(row, SourceFile) and row.bytes == len(row.name) for row in rows)


@pytest.mark.parametrize("count", [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE])
def test_rows_at_the_bounds_of_a_batch_are_all_there(tmp_path, count):
    names = [f"{number:03}" for number in range(count)]
    for given_in in (names, names[::-1]):
        assert [row.name for row in rows_of(given_in, tmp_path)] == names


def test_files_are_where_they_are_asked_for_and_go_with_the_rows(tmp_path):
    rows = rows_of([str(number) for number in range(10)], tmp_path)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    del rows
    assert list(tmp_path.iterdir()) == []


def test_a_few_rows_can_be_sent_to_another_process():
    assert [row.name for row in pickle.loads(pickle.dumps(rows_of(["b", "a"])))] == ["a", "b"]


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(sorted_rows, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(sorted_rows, "READ_AT_ONCE", 100)

    def peak(count: int) -> int:
        tracemalloc.start()
        rows = sources.source_files(tmp_path)
        for number in range(count):
            rows.append(SourceFile(f"{number:06}", number, f"{number}-2-3-4", True))
        assert sum(row.bytes for row in rows) == count * (count - 1) // 2
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak_bytes

    peak(200)  # what is imported at the first time does not count
    assert peak(4000) - peak(400) < 40 * 3600  # bytes; a row in memory takes 325

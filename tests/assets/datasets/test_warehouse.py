"""The warehouse: statistics of documents tables, and how two of them differ."""

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.texts import steps
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import warehouse
from slipway.resources.warehouse import RemovalCount, Total
from tests.assets.datasets.builds import hold_none_out
from tests.assets.datasets.corpora import recipe_for, write_file

pytestmark = pytest.mark.pure

HISTOGRAM = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000)).map(lambda counts: list(counts.items()))


def table_of(recipe: DatasetRecipe, durable: Path) -> Path:
    return document_table.path(durable, steps.make_documents(recipe, durable).result["blake3"])


def test_statistics_count_kept_documents_and_removals(tmp_path, durable):
    for name, text in {
        "a/one": "x" * 1,
        "a/two": "y" * 5,
        "b/three": "z" * 7,
        "b/four": "z" * 7,
        "c": "w" * 64,
    }.items():
        write_file(tmp_path / "corpus" / name, text)
    hold_none_out(durable)
    statistics = warehouse.statistics(table_of(recipe_for(tmp_path / "corpus", validation=1e-9), durable), top=2)
    assert (statistics.rows, statistics.documents, statistics.bytes, statistics.masked) == (5, 4, 77, 0)
    assert statistics.splits == (Total("train", 4, 77),)
    assert statistics.packages == (Total("c", 1, 64), Total("b", 1, 7))
    assert statistics.lengths == ((1, 1), (4, 2), (64, 1))
    assert statistics.removals == (RemovalCount("exact_duplicate", 1, ("b/three#0",), "b/four#0"),)


def test_a_file_that_is_no_table_is_refused(tmp_path):
    write_file(tmp_path / "table.parquet", "not parquet")
    with pytest.raises(duckdb.Error, match=r"table\.parquet"):
        warehouse.statistics(tmp_path / "table.parquet")


def test_no_text_is_kept_in_both_splits(corpus, durable):
    assert warehouse.documents_in_both_splits(table_of(recipe_for(corpus), durable)) == 0


def test_a_text_in_both_splits_is_found(tmp_path):
    path = tmp_path / "table.parquet"
    rows = "VALUES ('x', 'train', NULL), ('x', 'validation', NULL), ('y', 'train', NULL)"
    duckdb.sql(f"COPY (SELECT * FROM ({rows}) t(blake3, split, removed)) TO '{path}'")
    assert warehouse.documents_in_both_splits(path) == 1


@given(HISTOGRAM)
def test_equal_histograms_have_not_drifted(histogram):
    assert warehouse.stability_index(histogram, histogram) == 0


@given(HISTOGRAM, HISTOGRAM)
def test_drift_is_the_same_in_both_directions_and_never_negative(one, other):
    assert warehouse.stability_index(one, other) == pytest.approx(warehouse.stability_index(other, one))
    assert warehouse.stability_index(one, other) >= 0


def test_a_moved_distribution_has_drifted():
    assert warehouse.stability_index([(1, 90), (2, 10)], [(1, 80), (2, 20)]) < 0.25
    assert warehouse.stability_index([(1, 90), (2, 10)], [(1, 10), (2, 90)]) > 0.25

"""The warehouse: statistics of a documents table."""

import duckdb
import pytest

from assets.datasets import documents
from assets.datasets.sources import list_source
from resources.warehouse import Total, statistics
from tests.data.corpora import recipe_for, write_file


def test_statistics_count_documents_by_split_package_and_length(tmp_path):
    for name, text in {
        "a/one": "x" * 1,
        "a/two": "y" * 5,
        "b/three": "z" * 7,
        "b/four": "z" * 7,
        "c": "w" * 64,
    }.items():
        write_file(tmp_path / "corpus" / name, text)
    table = documents.write(list_source(recipe_for(tmp_path / "corpus")), 0, tmp_path)
    found = statistics(documents.table_path(tmp_path, table.blake3), packages=2)
    assert (found.rows, found.bytes, found.duplicates) == (4, 77, 1)
    assert found.splits == (Total("train", 4, 77),)
    assert found.packages == (Total("c", 1, 64), Total("b", 1, 7))
    assert found.lengths == ((1, 1), (4, 2), (64, 1))


def test_a_file_that_is_no_table_is_refused(tmp_path):
    write_file(tmp_path / "table.parquet", "not parquet")
    with pytest.raises(duckdb.Error, match=r"table\.parquet"):
        statistics(tmp_path / "table.parquet")

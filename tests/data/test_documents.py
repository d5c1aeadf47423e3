"""The documents table: one row a text, with a split that never moves."""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from assets.datasets import documents
from assets.datasets.sources import list_source
from tests.data.corpora import make_corpus, recipe_for, write_file


def rows_of(corpus: Path, durable: Path, validation: float = 0.25) -> list[dict[str, Any]]:
    table = documents.write(list_source(recipe_for(corpus)), validation, durable)
    return list(pq.read_table(documents.table_path(durable, table.blake3)).to_pylist())


def test_a_row_holds_the_text_and_what_is_known_of_it(tmp_path):
    write_file(tmp_path / "corpus" / "package" / "module.py", "λ = 1\r\n")
    [row] = rows_of(tmp_path / "corpus", tmp_path, validation=0)
    assert row == {
        "name": "package/module.py",
        "text": "λ = 1\r\n",
        "bytes": 8,
        "blake3": blake3("λ = 1\r\n".encode()).hexdigest(),
        "split": "train",
        "package": "package",
    }


def test_the_table_is_named_by_its_content_and_is_byte_identical_when_written_again(tmp_path):
    source = list_source(recipe_for(make_corpus(tmp_path / "corpus")))
    first = documents.write(source, 0.25, tmp_path / "one")
    second = documents.write(source, 0.25, tmp_path / "two")
    assert first == second
    data = documents.table_path(tmp_path / "one", first.blake3).read_bytes()
    assert blake3(data).hexdigest() == first.blake3
    assert data == documents.table_path(tmp_path / "two", second.blake3).read_bytes()


def test_equal_texts_are_kept_once_and_counted(tmp_path):
    for name in ("a.py", "b.py", "c.py"):
        write_file(tmp_path / "corpus" / name, "the same")
    write_file(tmp_path / "corpus" / "d.py", "another")
    table = documents.write(list_source(recipe_for(tmp_path / "corpus")), 0.25, tmp_path)
    assert (table.rows, table.duplicates) == (2, 2)
    assert [row["name"] for row in rows_of(tmp_path / "corpus", tmp_path)] == ["a.py", "d.py"]


def test_about_the_wanted_share_is_held_out(tmp_path):
    splits = [row["split"] for row in rows_of(make_corpus(tmp_path / "corpus", files=400), tmp_path)]
    assert 0.18 < splits.count("validation") / 400 < 0.32


def test_the_validation_split_never_moves(tmp_path):
    corpus = make_corpus(tmp_path / "corpus")
    before = {row["blake3"]: row["split"] for row in rows_of(corpus, tmp_path)}
    for index in range(0, 60, 7):
        (corpus / f"package{index % 3}" / f"module{index}.py").unlink()
    (corpus / "package1" / "module1.py").rename(corpus / "renamed.py")
    make_corpus(corpus / "more", files=90)
    after = {row["blake3"]: row["split"] for row in rows_of(corpus, tmp_path)}
    kept = before.keys() & after.keys()
    assert len(kept) >= 50
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}


@given(text=st.binary(), share=st.floats(0, 1), larger=st.floats(0, 1))
def test_a_larger_share_only_adds_to_validation(text, share, larger):
    share, larger = sorted((share, larger))
    digest = blake3(text).hexdigest()
    if documents.split_of(digest, share) == "validation":
        assert documents.split_of(digest, larger) == "validation"


def test_a_file_that_changes_while_it_is_read_is_refused_and_leaves_nothing(tmp_path):
    source = list_source(recipe_for(make_corpus(tmp_path / "corpus")))
    write_file(source.files[3].path, "changed")
    with pytest.raises(ValueError, match=r"module\d+\.py: changed while the corpus was being read"):
        documents.write(source, 0.25, tmp_path / "durable")
    assert list((tmp_path / "durable" / "documents").iterdir()) == []


def test_a_description_of_the_table_is_plain_values(tmp_path):
    table = documents.write(list_source(recipe_for(make_corpus(tmp_path / "corpus"))), 0.25, tmp_path)
    assert documents.Documents(**dataclasses.asdict(table)) == table


def test_every_column_is_described():
    assert list(documents.COLUMNS) == documents.SCHEMA.names
